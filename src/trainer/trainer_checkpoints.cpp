#include "src/trainer/trainer_checkpoints.h"

#include <charconv>
#include <unordered_map>

#include "src/config/config_changes.h"
#include "src/files/config_fields.h"

namespace hybrid_trainer {

namespace {

class WeightNames {
 public:
  explicit WeightNames(const WeightParts& parts) {
    for (std::size_t i = 0; i < parts.weights().size(); ++i) index_[parts.weights()[i]->name()] = i;
  }

  /// Returns nullopt for replicated tensors: batches and routers' state.
  std::optional<std::size_t> weight_of(const std::string& name, DType dtype) const {
    if (dtype == DType::kI32 || name.starts_with(kRoutingState) ||
        name.starts_with(concat(kSavedBatches, ".")))
      return {};
    std::string rest = name.substr(name.find('.') + 1);
    const std::size_t last = rest.rfind('.');
    if (name.starts_with("phases.") && last != std::string::npos)
      return numbered(name, rest.substr(last + 1));
    while (!rest.empty()) {
      if (const auto found = index_.find(rest); found != index_.end()) return found->second;
      const std::size_t dot = rest.rfind('.');
      rest.resize(dot == std::string::npos ? 0 : dot);
    }
    throw DataError(concat("the state's ", name, " does not belong to a weight"));
  }

 private:
  std::size_t numbered(const std::string& name, const std::string& number) const {
    std::size_t weight = 0;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, weight);
    if (read.ec == std::errc() && read.ptr == end && weight < index_.size()) return weight;
    throw DataError(
        concat("the state's ", name, " does not belong to any of the ", index_.size(), " weights"));
  }

  std::unordered_map<std::string, std::size_t> index_;
};

/// Byte range [begin, end) of concatenated tensors.
class ByteShare {
 public:
  ByteShare(std::size_t bytes, const CheckpointRanks& ranks)
      : begin_(bytes * static_cast<std::size_t>(ranks.rank()) /
               static_cast<std::size_t>(ranks.size())),
        end_(bytes * static_cast<std::size_t>(ranks.rank() + 1) /
             static_cast<std::size_t>(ranks.size())) {}

  /// Returns the elements of the next tensor that begin in the range.
  Shard of_next(const Tensor& tensor) {
    const std::size_t each = size_of(tensor.dtype());
    const auto element = [&](std::size_t byte) {
      const std::size_t within = std::clamp(byte, at_, at_ + tensor.bytes()) - at_;
      return static_cast<std::int64_t>((within + each - 1) / each);
    };
    const Shard own{element(begin_), element(end_)};
    at_ += tensor.bytes();
    return own;
  }

 private:
  std::size_t begin_, end_, at_ = 0;
};

Tensor elements_of(const Tensor& tensor, const Shard& elements) {
  return tensor.view({tensor.elements()}).rows(elements.first, elements.last);
}

void add_even_share(CheckpointShare& share, const std::map<std::string, Tensor>& same,
                    const CheckpointRanks& ranks) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : same) bytes += tensor.bytes();
  ByteShare own(bytes, ranks);
  for (const auto& [name, tensor] : same) {
    const Shard elements = own.of_next(tensor);
    if (elements.elements() == 0) continue;
    share.state.tensors[name] = elements_of(tensor, elements);
    share.shapes[name] = tensor.shape();
  }
}

/// Moves the tensors of weights, which contain this rank's shards, from `state` to `share`.
void add_parts(CheckpointShare& share, std::map<std::string, Tensor>& state,
               const WeightParts& parts) {
  const WeightNames names(parts);
  for (auto one = state.begin(); one != state.end();) {
    const auto& [name, tensor] = *one;
    const auto weight = names.weight_of(name, tensor.dtype());
    if (!weight) {
      ++one;
      continue;
    }
    const std::int64_t own = parts.mine(*weight).elements();
    const Shape& whole = parts.weights()[*weight]->shape();
    if (own > 0) share.state.tensors[name] = tensor;
    if (own == whole.elements()) {
      share.shapes[name] = tensor.shape();
    } else if (tensor.elements() == own) {
      share.shapes[name] = whole;
    }
    one = state.erase(one);
  }
}

/// Returns the elements of a stored tensor for the weight's shard `part`, whose shape is `here`.
WantedElements elements_of_part(const StoredTensor& stored, std::int64_t of_weight,
                                const Shard& part, const Shape& here) {
  const std::int64_t elements = stored.shape.elements();
  if (part.elements() == of_weight) return {0, elements, stored.shape};
  if (elements == of_weight) return {part.first, part.last, here};
  // One value per block of elements; shards begin at blocks.
  const std::int64_t first = part.first * elements / of_weight,
                     end = part.last == of_weight ? elements : part.last * elements / of_weight,
                     last = part.elements() > 0 ? end : first;
  return {first, last, {last - first}};
}

constexpr const char* kConfig = "trainer.config";
constexpr const char* kReturnPoints = "trainer.return_points";

}  // namespace

CheckpointRanks checkpoint_ranks(Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return {};
  return {ranks->rank(), ranks->size(),
          [ranks](const std::string& bytes) { return ranks->host_gather(bytes); }};
}

CheckpointShare own_share(State state, const WeightParts* parts, const CheckpointRanks& ranks) {
  CheckpointShare share{std::move(state), {}};
  if (!ranks.are_several()) return share;
  std::map<std::string, Tensor> all = std::exchange(share.state.tensors, {});
  if (parts != nullptr) add_parts(share, all, *parts);
  add_even_share(share, all, ranks);
  return share;
}

std::function<WantedElements(const std::string&, const StoredTensor&)> own_elements(
    const WeightParts& parts) {
  return [names = WeightNames(parts), &parts](const std::string& name,
                                              const StoredTensor& stored) -> WantedElements {
    const auto weight = names.weight_of(name, stored.dtype);
    if (!weight) return {0, stored.shape.elements(), stored.shape};
    return elements_of_part(stored, parts.weights()[*weight]->elements(), parts.mine(*weight),
                            parts.parameters()[*weight]->shape());
  };
}

TrainerCheckpoints::TrainerCheckpoints(const HybridTrainerConfig& config, TrainerProgress& progress,
                                       ModelTrainable& trainable, PhaseMachine& machine,
                                       Communicator* ranks, MessageCallback report,
                                       MessageCallback warn)
    : config_(config),
      progress_(progress),
      trainable_(trainable),
      machine_(machine),
      ranks_(ranks),
      report_(std::move(report)),
      warn_(std::move(warn)) {}

State TrainerCheckpoints::state() {
  State state;
  trainable_.save(state);
  machine_.save(state);
  state.integers["trainer.steps_done"] = progress_.steps_done;
  state.integers["trainer.last_phase"] = static_cast<std::int64_t>(progress_.last_phase);
  state.integers["trainer.roll_backs"] = progress_.roll_backs.count;
  state.integers["trainer.roll_backs.steps"] = progress_.roll_backs.steps;
  state.integers["trainer.roll_backs.target"] = progress_.roll_backs.target;
  state.integers["trainer.roll_backs.failed"] = progress_.roll_backs.failed;
  state.reals["trainer.roll_backs.rate_factor"] = progress_.roll_backs.rate_factor;
  state.series[kReturnPoints].assign(progress_.return_points.begin(),
                                     progress_.return_points.end());
  progress_.judge.save(state);
  state.texts[kConfig] = config_json(config_);
  return state;
}

std::string TrainerCheckpoints::save(const std::string& folder, CheckpointUse use) {
  std::vector<std::int64_t>& points = progress_.return_points;
  const TrainerProgress before = progress_;
  if (use == CheckpointUse::kResumeAndRollBack) {
    std::erase(points, progress_.steps_done);
    points.push_back(progress_.steps_done);
    while (std::ssize(points) > config_.checkpoint.keep) points.erase(points.begin());
    progress_.judge.remember(points);
  }
  try {
    const std::string path = save_share(folder);
    trainable_.release_after_save();
    return path;
  } catch (...) {
    progress_ = before;
    trainable_.release_after_save();
    throw;
  }
}

std::string TrainerCheckpoints::save_share(const std::string& folder) {
  const CheckpointRanks ranks = checkpoint_ranks(ranks_);
  CheckpointShare share;
  ranks.attempt([&] {
    share = own_share(state(), trainable_.parts(), ranks);
    for (auto& [name, tensor] : share.state.tensors)
      tensor = wait_for_host(tensor, trainable_.stream());
    return std::string();
  });
  CheckpointSaveOptions options{.keep = config_.checkpoint.keep,
                                .config_hash = checksum_of(share.state.text(kConfig))};
  if (config_.divergence.rolls_back()) options.also_keep = progress_.return_points;
  for (const std::int64_t step : progress_.judge.kept()) options.also_keep.push_back(step);
  if (!progress_.judge.best().empty()) options.best = progress_.judge.best().front().step;
  const SavedCheckpoint saved =
      save_checkpoint(folder, progress_.steps_done, share, options, ranks);
  for (const std::string& warning : saved.warnings) warn_(warning);
  return saved.path;
}

void TrainerCheckpoints::check_config_of(const State& state) const {
  HybridTrainerConfig saved;
  read_config_text(saved, state.text(kConfig), "the checkpoint's configuration");
  ConfigChanges changes = config_changes(saved, config_);
  const bool disables_prediction =
      saved.phases.max_predict_steps > 0 && config_.phases.max_predict_steps == 0;
  const bool is_under_way =
      saved.phases.traits().skips_backward
          ? state.integer("phases.jump.open") != 0
          : state.integer("phases.has_entered") != 0 &&
                state.integer("phases.entered") == static_cast<std::int64_t>(Phase::kPredict);
  if (disables_prediction && is_under_way) {
    changes.refused.push_back(
        concat("phases.max_predict_steps: got 0, but the run was saved during a prediction, which "
               "its next Correct phase must accept or revert; continue with ",
               saved.phases.max_predict_steps, " until then"));
  }
  check_changes(changes);
  for (const std::string& change : changes.accepted) report_(change);
  const std::string jump = learning_rate_jump(saved, config_, state.integer("trainer.steps_done"),
                                              rate_factor_of(state));
  if (!jump.empty()) report_(jump);
}

bool TrainerCheckpoints::resume(const std::string& folder) {
  const CheckpointRanks ranks = checkpoint_ranks(ranks_);
  const FoundCheckpoint found = find_newest_checkpoint(folder, kAnyStep, ranks);
  for (const std::string& warning : found.warnings) report_(warning);
  if (!found.checkpoint) return false;
  const Stream host(MemoryPool::create("host"));
  check_config_of(load_checkpoint(*found.checkpoint, host, CheckpointPart::kNumbers));
  const State state = own_state_of(*found.checkpoint);
  progress_.roll_backs = {
      state.integer("trainer.roll_backs"), state.integer("trainer.roll_backs.steps"),
      state.integer("trainer.roll_backs.target"), state.integer("trainer.roll_backs.failed"),
      state.real("trainer.roll_backs.rate_factor")};
  load(state);
  forget_lost_best(folder);
  return true;
}

void TrainerCheckpoints::forget_lost_best(const std::string& folder) {
  const CheckpointRanks ranks = checkpoint_ranks(ranks_);
  if (progress_.judge.keep_only(steps_of_checkpoints(folder, ranks)))
    report_(
        "a checkpoint with one of the lowest validation losses no longer exists; the best "
        "checkpoint is chosen from the others");
  const std::vector<BestCheckpoint>& best = progress_.judge.best();
  if (!ranks.lead()) return;
  const std::string problem =
      name_best_checkpoint(folder, best.empty() ? std::nullopt : std::optional(best.front().step));
  if (!problem.empty()) warn_(problem);
}

/// Loads a checkpoint, but only this rank's shards of sharded tensors.
State TrainerCheckpoints::own_state_of(const CheckpointInfo& checkpoint) const {
  const Stream host(MemoryPool::create("host"));
  const WeightParts* const parts = trainable_.parts();
  return parts ? load_checkpoint(checkpoint, host, own_elements(*parts))
               : load_checkpoint(checkpoint, host);
}

void TrainerCheckpoints::load(const State& state) {
  progress_.steps_done = state.integer("trainer.steps_done");
  const std::int64_t last_phase = state.integer("trainer.last_phase");
  if (last_phase < 0 || last_phase >= std::ssize(kAllPhases))
    throw DataError(concat("trainer.last_phase: the checkpoint has ", last_phase, ", want 0 to ",
                           std::ssize(kAllPhases) - 1));
  progress_.last_phase = static_cast<Phase>(last_phase);
  const std::vector<double>& points = state.reals_of(kReturnPoints);
  progress_.return_points.assign(points.begin(), points.end());
  progress_.judge.load(state);
  trainable_.rates().set_rate_factor(progress_.roll_backs.rate_factor);
  trainable_.set_steps_done(progress_.steps_done);
  trainable_.load(state);
  machine_.load(state);
}

/// Returns the newest intact checkpoint for a rollback, or nullopt if all are damaged.
std::optional<CheckpointInfo> TrainerCheckpoints::newest_before(const std::string& folder,
                                                                std::int64_t before) const {
  const std::vector<std::int64_t>& points = progress_.return_points;
  try {
    for (;;) {
      const FoundCheckpoint found =
          find_newest_checkpoint(folder, before, checkpoint_ranks(ranks_));
      for (const std::string& warning : found.warnings) report_(warning);
      if (!found.checkpoint) return {};
      before = found.checkpoint->step;
      if (std::count(points.begin(), points.end(), before) > 0) return found.checkpoint;
    }
  } catch (const DataError& damaged) {
    report_(damaged.what());
    return {};
  }
}

std::optional<CheckpointInfo> TrainerCheckpoints::target_of(const std::string& folder,
                                                            std::int64_t failed) const {
  const RollBacks& earlier = progress_.roll_backs;
  const bool has_advanced = failed > earlier.failed;
  auto found = newest_before(folder, has_advanced ? failed : earlier.target);
  if (!found && !has_advanced) found = newest_before(folder, earlier.target + 1);
  return found;
}

void TrainerCheckpoints::roll_back(const std::string& folder, const StepRecord& failed) {
  const DivergenceConfig& config = config_.divergence;
  RollBacks& done = progress_.roll_backs;
  const auto give_up = [&](const std::string& why) {
    throw Diverged(
        concat("training diverged in step ", failed.step, ": ", failed.event, "; ", why));
  };
  if (done.count >= config.max_roll_backs)
    give_up(concat("the run has rolled back ", done.count, done.count == 1 ? " time" : " times",
                   " already (divergence.max_roll_backs = ", config.max_roll_backs, ")"));
  const auto target = target_of(folder, failed.step);
  if (!target) give_up("there is no checkpoint to roll back to");
  ++done.count;
  done.rate_factor *= config.roll_back_rate;
  load(own_state_of(*target));
  done.target = progress_.steps_done;
  done.failed = std::max(done.failed, failed.step);
  done.steps += failed.step - progress_.steps_done;
  if (checkpoint_ranks(ranks_).lead()) {  // otherwise a resumed run would continue from a later one
    const std::string left = discard_checkpoints_after(folder, progress_.steps_done);
    if (!left.empty()) warn_(left);
  }
  forget_lost_best(folder);
  warn_(concat("rolled back from step ", failed.step, " to step ", progress_.steps_done,
               " (roll-back ", done.count, " of ", config.max_roll_backs, ") because of step ",
               failed.step, ": ", failed.event, "; the learning rate is now ",
               brief(done.rate_factor), " of the scheduled rate"));
}

}  // namespace hybrid_trainer
