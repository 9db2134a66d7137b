#include "src/trainer/step/micro_batches.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "hybrid_trainer/nn/residual_block.h"
#include "hybrid_trainer/nn/text_head.h"
#include "memory/stored_tape.h"
#include "src/core/profile.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kMicroBatchesBudget = "trainer.micro_batches.budget";

std::string micro_batches_key(Phase phase) {
  return concat("trainer.micro_batches.", name_of(phase));
}

}  // namespace

MicroBatches::MicroBatches(const HybridTrainerConfig& config, const Stages& stages)
    : stages_(stages.all()),
      configured_(config.gradient_accumulation.micro_batches),
      budget_bytes_(config.device_budget().value_or(0)) {
  counts_.fill(configured_);
}

std::int64_t MicroBatches::of(const Batch& batch, std::int64_t largest_count) const {
  if (stages_.size() == 1) return largest_count;
  const std::int64_t max_tokens = stages_.back().batch.tokens() / largest_count;
  std::int64_t count = 1;
  while (batch.size() % count != 0 || batch.tokens() / count > max_tokens) ++count;
  return count;
}

Batch MicroBatches::part(const Batch& batch, std::int64_t index) const {
  const std::int64_t size = batch.size() / of(batch);
  return batch.examples(index * size, (index + 1) * size);
}

void MicroBatches::require_whole(const Batch& batch) const {
  if (batch.size() % of(batch) == 0) return;
  throw ShapeMismatch(concat("a batch of ", batch.size(), " examples does not split into ", count(),
                             " micro-batches"));
}

/// Returns the next multiple of the count that changes the batch's micro-batches, if there is one.
std::optional<std::int64_t> MicroBatches::halved(const Batch& batch) const {
  const std::int64_t largest = stages_.size() == 1 ? batch.size() : stages_.back().batch.batch_size;
  for (std::int64_t count = 2 * own_factor_ * this->count(); largest % count == 0; count *= 2) {
    if (of(batch, count) != of(batch)) return count;
  }
  return {};
}

void MicroBatches::halve(const Batch& batch, bool alone) {
  const std::int64_t count = halved(batch).value();
  if (alone) {
    own_factor_ = count / this->count();
  } else {
    counts_[static_cast<std::size_t>(phase_)] = count;
  }
}

void MicroBatches::save(State& state) {
  for (const Phase phase : kAllPhases)
    state.integers[micro_batches_key(phase)] = counts_[static_cast<std::size_t>(phase)];
  state.integers[kMicroBatchesBudget] = static_cast<std::int64_t>(budget_bytes_);
  own_factor_ = 1;
}

void MicroBatches::load(const State& state, const std::function<void(const std::string&)>& report) {
  for (const Phase phase : kAllPhases)
    counts_[static_cast<std::size_t>(phase)] = state.integer(micro_batches_key(phase));
  const auto budget = static_cast<std::size_t>(state.integer(kMicroBatchesBudget));
  const bool were_halved = std::any_of(counts_.begin(), counts_.end(),
                                       [&](std::int64_t count) { return count != configured_; });
  if (were_halved && budget > 0 && (budget_bytes_ == 0 || budget_bytes_ > budget)) {
    counts_.fill(configured_);
    report(
        "the memory budget is larger than before, so the run tries the configured micro-batch size "
        "again");
  }
  own_factor_ = 1;
}

MemoryRetry::MemoryRetry(const HybridTrainerConfig& config, MicroBatches& micro_batches,
                         Communicator* ranks, WeightParts* parts, const Stream& stream)
    : micro_batches_(micro_batches),
      ranks_(ranks),
      parts_(parts),
      stream_(stream),
      has_offloaded_activations_(config.memory.activations != "device"),
      keeps_shares_when_halved_(config.phases.traits().runs_ahead_of_ranks &&
                                config.gradient_accumulation.micro_batches %
                                        (ranks == nullptr ? 1 : ranks->size()) ==
                                    0) {}

StepRetry MemoryRetry::wait_for_retry(const Batch& batch, const OutOfMemory& error,
                                      Optimizer& optimizer) {
  const bool outside_pools = stream_.device().type == DeviceType::kCuda && !error.shortage();
  if (outside_pools) throw;  // such as a library's kernels, which smaller micro-batches do not help
  const bool elsewhere = error.shortage() && error.shortage()->pool != stream_.pool()->name();
  if (elsewhere && !has_offloaded_activations_) throw;  // smaller micro-batches would use as much
  if (optimizer.leave_device(stream_)) return StepRetry::kSame;
  if (!micro_batches_.can_halve(batch)) throw;
  stream_.synchronize();  // waits for the failed attempt
  stream_.pool()->trim();
  return StepRetry::kHalved;
}

void MemoryRetry::reduce_memory(const Batch& batch, const OutOfMemory& error, StepRetry& retry,
                                Optimizer& optimizer) {
  if (!is_distributed() || retry != StepRetry::kNone) throw;
  retry = wait_for_retry(batch, error, optimizer);
  if (parts_ != nullptr) parts_->repeat_pass();
}

void MemoryRetry::repeat_step(const Batch& batch, StepRetry retry, bool involves_peers) {
  if (retry == StepRetry::kHalved) micro_batches_.halve(batch, is_distributed() && !involves_peers);
}

StepRetry MemoryRetry::wait_for_common_retry(StepRetry here) const {
  if (stream_.device().simulated) return here;
  StepRetry most = here;
  for (const std::string& theirs : ranks_->host_gather({reinterpret_cast<const char*>(&here), 1}))
    most = std::max(most, static_cast<StepRetry>(theirs.at(0)));
  return most;
}

ImmediateUpdates::ImmediateUpdates(const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                                   const Stream& stream)
    : parameters_(parameters), optimizer_(optimizer), stream_(stream) {
  for (std::size_t i = 0; i < parameters.size(); ++i) slots_[parameters[i]].index = i;
}

void ImmediateUpdates::begin(float learning_rate) {
  require_whole();
  for (auto& [parameter, slot] : slots_) slot = {.index = slot.index};
  learning_rate_ = learning_rate;
  is_finite_ = true;
}

Tensor ImmediateUpdates::gradient(const Parameter& parameter) const {
  Slot& slot = slots_.at(&parameter);
  if (!slot.gradient && !slot.is_complete)
    slot.gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return slot.gradient;
}

void ImmediateUpdates::ready(const Parameter& parameter, const Stream& stream) {
  const StepPartTimer timer(stream, StepPart::kUpdate);
  Slot& slot = slots_.at(&parameter);
  slot.square_sum = kernels::wait_for_sum_of_squares(slot.gradient, stream);
  is_finite_ = is_finite_ && std::isfinite(slot.square_sum);
  if (is_finite_) {
    if (!is_updating_) optimizer_.begin_step(stream);
    is_updating_ = true;
    optimizer_.update_weight(slot.index, learning_rate_, 1.0f, stream);
  }
  slot.is_complete = true;
  slot.gradient = {};
}

double ImmediateUpdates::end() {
  double sum = 0;
  for (const Parameter* parameter : parameters_) sum += slots_.at(parameter).square_sum;
  if (!is_finite_) {
    require_whole();
  } else if (is_updating_) {
    optimizer_.end_step(stream_);
    is_updating_ = false;
  }
  return std::sqrt(sum);
}

void ImmediateUpdates::require_whole() const {
  if (!is_updating_) return;
  throw Diverged(
      "a step failed after it had updated only some of the weights (memory.gradients=consume "
      "updates each weight during backward); continue from the newest checkpoint");
}

namespace {

constexpr const char* kSeesAll =
    "the model has layers that cannot pass a state from one segment to the next: attention without "
    "a window or after a convolution, rotary angles that depend on the length, position tables, or "
    "T + U·Vᵀ; leave the key out, give attention a window (model.window), or use a model with "
    "Mamba-2 or Gated DeltaNet";
constexpr std::int64_t kMinSegment = 64;

/// Throws ConfigError if the key, set to `got`, needs segments that the model does not support.
void check_supports_segments(const LossModel& model, const HybridTrainerConfig& config,
                             const std::string& got) {
  if (model.supports_segments()) return;
  throw ConfigError(
      {concat(got, ", but ",
              config.model.bidirectional ? "an encoder attends to later tokens, so its sequences "
                                           "cannot be split; leave the key out"
                                         : kSeesAll)});
}

void check_segment(const LossModel& model, const HybridTrainerConfig& config) {
  const std::int64_t wanted = config.memory.segment_length;
  if (wanted == 0) return;
  if (wanted < kMinSegment)
    throw ConfigError(
        {concat("memory.segment_length: got ", wanted, ", want 0 or at least ", kMinSegment)});
  check_supports_segments(model, config, concat("memory.segment_length: got ", wanted));
}

}  // namespace

MicroBatchPass::MicroBatchPass(LossModel& model, const HybridTrainerConfig& config,
                               const LearningRates& rates, const StepScales& scales,
                               MemoryPlaces& places, const Stream& stream)
    : model_(model),
      seed_(static_cast<std::uint64_t>(config.training.seed)),
      label_smoothing_(static_cast<float>(config.training.label_smoothing)),
      memory_(config.memory),
      rates_(rates),
      scales_(scales),
      places_(places),
      stream_(stream),
      states_(config.data.carry_state ? std::make_unique<RowStates>() : nullptr) {
  check_segment(model, config);
  if (config.data.carry_state) check_supports_segments(model, config, "data.carry_state: got true");
  if (!config.training.cuda_graphs || stream_.native() == nullptr) return;
  step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, stream_);
  host_step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, places.host());
}

void MicroBatchPass::compute_in(DType dtype, bool may_record) {
  dtype_ = dtype;
  may_record_ = may_record;
  model_.visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype_, stream_); });
}

bool MicroBatchPass::records() const {
  return may_record_ && step_words_ && stream_.profile() == nullptr;
}

void MicroBatchPass::upload_step_number() {
  const auto step = static_cast<std::uint64_t>(rates_.steps_done());
  host_step_words_.data<std::int32_t>()[0] = static_cast<std::int32_t>(step);
  host_step_words_.data<std::int32_t>()[1] = static_cast<std::int32_t>(step >> 32);
  copy(step_words_, host_step_words_, stream_);
}

std::int64_t MicroBatchPass::contributions(const Batch& part) const {
  return model_.contributions(
      part, model_.segment_for(memory_.segment_length, part.tokens_per_example()));
}

Pass MicroBatchPass::pass(bool training, std::int64_t first_token, const Batch& part) const {
  return {.training = training,
          .dtype = dtype_,
          .products = scales_.rounding(),
          .seed = seed_,
          .step = static_cast<std::uint64_t>(rates_.steps_done()),
          .recompute = memory_.recompute,
          .first_token = first_token,
          .step_words = records() ? step_words_ : Tensor{},
          .segment = model_.segment_for(memory_.segment_length, part.tokens_per_example()),
          .kept_segments = memory_.kept_segments,
          .label_smoothing = label_smoothing_};
}

void MicroBatchPass::begin_gradient() const {
  scales_.begin_gradient();
  if (PreferenceLoss* const preference = model_.preference()) preference->clear(stream_);
  model_.visit_routings([&](RoutedExperts& experts) {
    if (experts.count().sums) fill_zero(experts.count().sums, stream_);
  });
}

Tensor MicroBatchPass::enqueue(const Batch& part, const MicroBatch& place, const Stream& stream,
                               ImmediateUpdates* updates) const {
  Pass pass = this->pass(true, place.index * part.tokens(), part);
  pass.counts = place.is_of_step;
  pass.loss_may_wait = updates == nullptr;
  pass.states = states_.get();
  if (states_) states_->set_sequences(place.count * part.size());
  const auto tape = make_tape(
      pass,
      {places_.at(memory_.activations), memory_.activation_bits, memory_.activations == "file"},
      stream_);
  Tensor loss;
  {
    const StepPartTimer timer(stream, StepPart::kForward);
    loss = model_.forward(part, loss_scale() / static_cast<float>(place.count), *tape, stream);
  }
  if (updates != nullptr) updates->observe_loss(kernels::wait_for_value(loss, stream));
  const StepPartTimer timer(stream, StepPart::kBackward);
  model_.backward(part, *tape, stream);
  return loss;
}

Tensor MicroBatchPass::enqueue_forward(const Batch& part) const {
  Pass pass = this->pass(false, 0, part);
  pass.counts = true;
  ForwardOnlyTape tape(pass);
  return model_.forward(part, 1.0f, tape, stream_);
}

const TextHead* MicroBatchPass::comparing_head() const {
  const TextHead* const head = model_.text_head();
  return head != nullptr && head->text_loss().compares_examples() ? head : nullptr;
}

Tensor MicroBatchPass::enqueue_outputs(const Batch& part, std::optional<std::int64_t> index) const {
  Pass pass = this->pass(index.has_value(), index.value_or(0) * part.tokens(), part);
  pass.counts = !index;
  return dynamic_cast<LanguageModel&>(model_).text_outputs(part, pass, stream_);
}

double MicroBatchPass::wait_for_mean_of(const std::vector<Tensor>& losses,
                                        double last_share) const {
  double sum = 0;
  for (const Tensor& loss : losses)
    sum += kernels::wait_for_value(loss, stream_) * (&loss == &losses.back() ? last_share : 1);
  return sum / (static_cast<double>(losses.size()) - 1 + last_share);
}

}  // namespace hybrid_trainer
