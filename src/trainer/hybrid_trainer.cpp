#include "hybrid_trainer/trainer/hybrid_trainer.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/batch_upload.h"
#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/trainer/model_trainable.h"
#include "src/sharding/state_parts.h"
#include "src/trainer/config_changes.h"
#include "src/trainer/stretches.h"

namespace hybrid_trainer {
namespace {

PhaseMachine::Setup machine_setup(const HybridTrainerConfig& config) {
  const PredictAwareMemoryConfig& memory = config.predict_aware_memory;
  return {.phases = config.phases,
          .divergence = config.divergence,
          .restore_lookahead = memory.async_restore ? memory.async_restore_lookahead : 0,
          .steps = config.training.steps,
          .learning_rate_finder = config.learning_rate_finder,
          .ramp_steps = config.schedule.warmup_steps};
}

constexpr const char* kConfig = "trainer.config";
constexpr const char* kReturnPoints = "trainer.return_points";

const HybridTrainerConfig& validated(const HybridTrainerConfig& config) {
  config.validate({});
  return config;
}

}  // namespace

HybridTrainer::HybridTrainer(LossModel& model, const HybridTrainerConfig& config,
                             const Stream& stream, std::shared_ptr<MemoryPool> host_pool,
                             Communicator* ranks)
    : HybridTrainer(
          model, config, stream,
          std::make_shared<MemoryPlaces>(
              config.memory, stream,
              host_pool ? std::move(host_pool)
                        : make_host_pool(stream.device(), config.memory.host_budget.limit())),
          ranks) {}

HybridTrainer::HybridTrainer(LossModel& model, const HybridTrainerConfig& config,
                             const Stream& stream, std::shared_ptr<MemoryPlaces> places,
                             Communicator* ranks)
    : config_(validated(config)),
      stretches_(std::make_unique<Stretches>(config_)),
      stream_(stream),
      host_pool_(places->host().pool()),
      monitor_(config.memory.profile, config.device_budget()),
      upload_(std::make_unique<BatchUpload>()),
      trainable_(std::make_unique<ModelTrainable>(
          model, config, stream, std::move(places),
          [this](const std::string& text) { tell_mishap(text); }, ranks)),
      ranks_(ranks),
      machine_(*trainable_, machine_setup(config)) {}

HybridTrainer::~HybridTrainer() = default;

const OffloadUse& HybridTrainer::offload_use() const { return trainable_->offload_use(); }

bool HybridTrainer::has_late_updates() const {
  return config_.phases.lacks_optimizer_state() && last_phase_ == Phase::kPredict;
}

SpeculationUse HybridTrainer::speculation_use() const { return trainable_->speculation_use(); }

const PhasePrecision& HybridTrainer::precision() const { return trainable_->precision(); }

BatchShape HybridTrainer::batch_shape() const { return stretches_->at(steps_done_).batch; }

void HybridTrainer::with_average(const std::function<void()>& read_out) {
  if (!trainable_->has_average()) return;
  trainable_->exchange_average();
  try {
    read_out();
  } catch (const Diverged&) {
    trainable_->exchange_average();
    throw;
  } catch (...) {  // which one of several ranks may meet alone
    if (!trainable_->is_one_of_several()) trainable_->exchange_average();
    throw;
  }
  trainable_->exchange_average();
}

void HybridTrainer::with_exact_weights(const std::function<void()>& use) {
  trainable_->with_exact_weights(use);
}

std::optional<bool> HybridTrainer::late_vote_to_stop(bool asks) {
  return trainable_->vote_to_stop(asks);
}

void HybridTrainer::settle() {
  PhaseOutcome outcome;
  machine_.settle(outcome);
  must_go_back_ |= outcome.recovery == Recovery::kRollBack;
  if (!outcome.event.empty()) tell_mishap(outcome.event);
}

void HybridTrainer::tell(const std::string& text) const {
  if (listener_) listener_(text);
}

void HybridTrainer::tell_mishap(const std::string& text) {
  mishaps_ += (mishaps_.empty() ? "" : "; ") + text;
  if (mishap_listener_) mishap_listener_(text);
  tell(text);
}

/// Tells once of each status worse than the last one told, from warning on, and of a leak.
void HybridTrainer::watch_memory(StepRecord& record) {
  const std::int64_t whole_tokens = stretches_->all().back().batch.sequence_length;
  const std::int64_t examples =  // of the config's length
      config_.stretches.empty() ? record.effective_batch : record.tokens / whole_tokens;
  const MemoryReading reading =
      monitor_.observe(record.phase, record.device_memory,
                       std::max<std::int64_t>(1, examples / record.micro_batches));
  record.recommended_micro_batch = reading.recommended_micro_batch;
  record.memory_status = name_of(reading.status);
  record.memory_share = reading.share;
  record.memory_risk = reading.risk;
  record.memory_leaks = reading.leaks;
  if (reading.status >= MemoryStatus::kWarning && reading.status > told_status_) {
    told_status_ = reading.status;
    const std::string text = concat("device memory: ", name_of(reading.status), ", ",
                                    brief(100 * reading.share), " % of its budget");
    record.event += (record.event.empty() ? "" : "; ") + text;
    tell(concat("step ", record.step, ": ", text));
  }
  if (reading.leaks && !told_leak_) {
    told_leak_ = true;
    tell_mishap(concat("device memory grows with every step of ", name_of(record.phase),
                       ": something is never freed"));
  }
}

/// The first step of each stretch but the first says what steps are made of from there on.
void HybridTrainer::tell_stretch(StepRecord& record) {
  const Stretch& stretch = stretches_->at(record.step - 1);
  if (record.step == 1 || stretch == stretches_->at(record.step - 2)) return;
  const std::string text = concat(text_of(stretch), " a step from here on");
  record.event += (record.event.empty() ? "" : "; ") + text;
  tell(concat("step ", record.step, ": ", text));
}

/// All that a record tells but its time.
StepRecord HybridTrainer::record_of(const PhaseOutcome& outcome, const Batch& batch) {
  StepRecord record;
  record.learning_rate = trainable_->learning_rate();
  record.rate_factor = outcome.rate_factor;
  record.probe_position = outcome.probe_position;
  record.probe_cost = outcome.probe_cost;
  record.planning_cost = outcome.planning_cost;
  record.step = steps_done_ + 1;
  record.phase = outcome.phase;
  record.loss = outcome.loss;
  record.gradient_norm = outcome.gradient_norm;
  record.predicted_loss = outcome.predicted_loss;
  record.confidence = outcome.confidence;
  if (!config_.phases.predicts_backward()) record.lag = outcome.lag;
  record.prediction_error = outcome.prediction_error;
  record.decision = outcome.decision;
  record.predictor = outcome.predictor;
  if (!outcome.predictor.empty()) record.planned_steps = outcome.planned_steps;
  record.advantage = outcome.advantage;
  if (outcome.decision != Decision::kNone) record.kept_fraction = outcome.kept_fraction;
  record.recovery = outcome.recovery;
  must_go_back_ = outcome.recovery == Recovery::kRollBack;
  if (std::exchange(went_back_, false))
    record.recovery = std::max(record.recovery, Recovery::kRollBack);
  record.cost = outcome.cost;
  record.event = outcome.event;
  record.tokens = batch.tokens();
  record.effective_batch = batch.size();
  record.micro_batches = trainable_->micro_batches_of(batch);
  record.device_memory = stream_.pool()->use();
  if (const auto border = trainable_->take_border()) record.border_peak_bytes = border->peak_total;
  record.host_memory = host_pool_->use();
  tell_stretch(record);
  watch_memory(record);
  record.warns = outcome.warns || !mishaps_.empty();
  if (!mishaps_.empty())
    record.event += (record.event.empty() ? "" : "; ") + std::exchange(mishaps_, "");
  return record;
}

void HybridTrainer::hold_weights(bool holds) {
  holds_weights_ = holds;
  if (!holds) trainable_->send_weights();
}

StepRecord HybridTrainer::step(const Batch& batch) {
  const auto begin = Clock::now();
  trainable_->send_weights();
  const Phase before = last_phase_;
  stream_.pool()->reset_peaks();
  trainable_->set_steps_done(steps_done_);
  PhaseOutcome outcome;
  try {
    machine_.step(upload_->to_device(batch, stream_), outcome);
  } catch (const Diverged& error) {
    if (!holds_weights_) trainable_->send_weights();
    throw DivergedStep(error.what(), record_of(outcome, batch));
  }
  if (!holds_weights_) trainable_->send_weights();
  StepRecord record = record_of(outcome, batch);
  ++steps_done_;
  last_phase_ = outcome.phase;
  record.seconds = seconds_since(begin);
  record.tokens_per_second = static_cast<double>(record.tokens) / record.seconds;
  if (outcome.phase != before)
    tell(concat("step ", record.step, ": ", name_of(before), " -> ", name_of(outcome.phase)));
  if (!outcome.event.empty()) tell(concat("step ", record.step, ": ", outcome.event));
  return record;
}

/// What a checkpoint holds of this rank's trainer.
State HybridTrainer::state() {
  State state;
  trainable_->save(state);
  machine_.save(state);
  state.integers["trainer.steps_done"] = steps_done_;
  state.integers["trainer.last_phase"] = static_cast<std::int64_t>(last_phase_);
  state.integers["trainer.roll_backs"] = roll_backs_.count;
  state.integers["trainer.roll_backs.steps"] = roll_backs_.steps;
  state.integers["trainer.roll_backs.target"] = roll_backs_.target;
  state.integers["trainer.roll_backs.failed"] = roll_backs_.failed;
  state.reals["trainer.roll_backs.rate_factor"] = roll_backs_.rate_factor;
  state.series[kReturnPoints].assign(return_points_.begin(), return_points_.end());
  state.texts[kConfig] = config_json(config_);
  return state;
}

std::string HybridTrainer::save(const std::string& folder, CheckpointUse use) {
  settle();
  const std::vector<std::int64_t> before = return_points_;
  if (use == CheckpointUse::kResumeAndRollBack) {
    std::erase(return_points_, steps_done_);
    return_points_.push_back(steps_done_);
    while (std::ssize(return_points_) > config_.checkpoint.keep)
      return_points_.erase(return_points_.begin());
  }
  try {
    const std::string path = save_share(folder);
    trainable_->release_after_save();
    return path;
  } catch (...) {
    return_points_ = before;
    trainable_->release_after_save();
    throw;
  }
}

std::string HybridTrainer::save_share(const std::string& folder) {
  const CheckpointRanks ranks = checkpoint_ranks(ranks_);
  CheckpointShare share;
  ranks.attempt([&] {
    share = own_share(state(), trainable_->parts(), ranks);
    for (auto& [name, tensor] : share.state.tensors) tensor = wait_for_host(tensor, stream_);
    return std::string();
  });
  CheckpointSaveOptions options{.keep = config_.checkpoint.keep,
                                .config_hash = checksum_of(share.state.text(kConfig))};
  if (config_.divergence.rolls_back()) options.also_keep = return_points_;
  const SavedCheckpoint saved = save_checkpoint_share(folder, steps_done_, share, options, ranks);
  for (const std::string& warning : saved.warnings) tell_mishap(warning);
  return saved.path;
}

void HybridTrainer::check_config_of(const State& state,
                                    const std::optional<HybridTrainerConfig>& older) const {
  const bool is_told = state.texts.contains(kConfig);
  HybridTrainerConfig saved = is_told ? HybridTrainerConfig() : older.value_or(config_);
  if (is_told) read_config_text(saved, state.text(kConfig), "the checkpoint's configuration");
  ConfigChanges changes = config_changes(saved, config_);
  const bool gives_up = saved.phases.max_predict_steps > 0 && config_.phases.max_predict_steps == 0;
  const bool is_under_way =
      saved.phases.predicts_backward()
          ? state.integer("phases.jump.open") != 0
          : state.integer("phases.has_entered") != 0 &&
                state.integer("phases.entered") == static_cast<std::int64_t>(Phase::kPredict);
  if (gives_up && is_under_way) {
    changes.refused.push_back(
        concat("phases.max_predict_steps: got 0, but the run was saved within a prediction, which "
               "is decided in the next Correct phase; go on with ",
               saved.phases.max_predict_steps, " until then"));
  }
  check_changes(changes);
  for (const std::string& change : changes.told) tell(change);
  const std::string jump = learning_rate_jump(saved, config_, state.integer("trainer.steps_done"),
                                              rate_factor_of(state));
  if (!jump.empty()) tell(jump);
}

bool HybridTrainer::resume(const std::string& folder,
                           const std::optional<HybridTrainerConfig>& older) {
  const CheckpointRanks ranks = checkpoint_ranks(ranks_);
  const FoundCheckpoint found = find_newest_checkpoint(folder, kAnyStep, ranks);
  for (const std::string& warning : found.warnings) tell(warning);
  if (!found.checkpoint) return false;
  const Stream host(MemoryPool::create("host"));
  check_config_of(load_checkpoint(*found.checkpoint, host, CheckpointPart::kNumbers), older);
  const State state = own_state_of(*found.checkpoint);
  if (state.integers.contains("trainer.roll_backs")) {
    roll_backs_ = {state.integer("trainer.roll_backs"), state.integer("trainer.roll_backs.steps"),
                   state.integer("trainer.roll_backs.target"),
                   state.integer("trainer.roll_backs.failed"),
                   state.real("trainer.roll_backs.rate_factor")};
  }
  load(state);
  return true;
}

/// Of what ranks have parts of, this one's alone.
State HybridTrainer::own_state_of(const CheckpointInfo& checkpoint) const {
  const Stream host(MemoryPool::create("host"));
  const WeightParts* const parts = trainable_->parts();
  return parts ? load_checkpoint(checkpoint, host, own_elements(*parts))
               : load_checkpoint(checkpoint, host);
}

void HybridTrainer::load(const State& state) {
  steps_done_ = state.integer("trainer.steps_done");
  last_phase_ = static_cast<Phase>(state.integer("trainer.last_phase"));
  return_points_ = {steps_done_};  // of earlier versions, to which all checkpoints were such
  if (const auto found = state.series.find(kReturnPoints); found != state.series.end())
    return_points_.assign(found->second.begin(), found->second.end());
  trainable_->set_rate_factor(roll_backs_.rate_factor);
  trainable_->set_steps_done(steps_done_);
  trainable_->load(state);
  machine_.load(state);
}

std::optional<CheckpointInfo> HybridTrainer::checkpoint_to_go_back_to(const std::string& folder,
                                                                      std::int64_t failed) const {
  const CheckpointRanks ranks = checkpoint_ranks(ranks_);
  const auto newest_before = [&](std::int64_t before) -> std::optional<CheckpointInfo> {
    try {
      for (;;) {
        const FoundCheckpoint found = find_newest_checkpoint(folder, before, ranks);
        for (const std::string& warning : found.warnings) tell(warning);
        if (!found.checkpoint) return {};
        before = found.checkpoint->step;
        if (std::count(return_points_.begin(), return_points_.end(), before) > 0)
          return found.checkpoint;
      }
    } catch (const DataError& all_are_damaged) {
      tell(all_are_damaged.what());
      return {};
    }
  };
  const bool came_further = failed > roll_backs_.failed;
  auto found = newest_before(came_further ? failed : roll_backs_.target);
  if (!found && !came_further) found = newest_before(roll_backs_.target + 1);
  return found;
}

void HybridTrainer::roll_back(const std::string& folder, const StepRecord& failed) {
  const DivergenceConfig& config = config_.divergence;
  const auto give_up = [&](const std::string& why) {
    throw Diverged(
        concat("training diverged in step ", failed.step, ": ", failed.event, "; ", why));
  };
  if (roll_backs_.count >= config.max_roll_backs) {
    give_up(concat("it went back ", roll_backs_.count,
                   " times before, divergence.max_roll_backs = ", config.max_roll_backs));
  }
  const auto target = checkpoint_to_go_back_to(folder, failed.step);
  if (!target) give_up("there is no checkpoint to go back to");
  ++roll_backs_.count;
  roll_backs_.rate_factor *= config.roll_back_rate;
  load(own_state_of(*target));
  roll_backs_.target = steps_done_;
  roll_backs_.failed = std::max(roll_backs_.failed, failed.step);
  roll_backs_.steps += failed.step - steps_done_;
  must_go_back_ = false;
  went_back_ = true;
  if (checkpoint_ranks(ranks_).lead()) {  // else a resumed run would go on from a later one
    const std::string left = discard_checkpoints_after(folder, steps_done_);
    if (!left.empty()) tell_mishap(left);
  }
  tell_mishap(concat(
      "went back from step ", failed.step, " to step ", steps_done_, " (number ", roll_backs_.count,
      " of ", config.max_roll_backs, "), the learning rate is ", brief(roll_backs_.rate_factor),
      " of the schedule's from here on, because of step ", failed.step, ": ", failed.event));
}

}  // namespace hybrid_trainer
