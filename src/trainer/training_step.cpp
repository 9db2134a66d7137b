#include "src/trainer/training_step.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/optim/gradient_norm.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "hybrid_trainer/trainer/rank_checks.h"
#include "src/sharding/lone_gradients.h"
#include "src/sharding/ordered_gradients.h"
#include "src/sharding/scattered_gradients.h"
#include "src/trainer/late_gradients.h"
#include "src/trainer/local_steps.h"

namespace hybrid_trainer {
namespace {

WeightSharing sharing_of(const HybridTrainerConfig& config, std::int64_t bucket_bytes) {
  const DistributedConfig& given = config.distributed;
  return {.apart = given.zero == 3,
          .beside = given.overlap && DeviceMap(config.memory).farthest() == "device",
          .bucket_bytes = bucket_bytes,
          .bytes_ahead = static_cast<std::size_t>(given.overlap ? bucket_bytes : 0)};
}

}  // namespace

TrainingStep::TrainingStep(LossModel& model, const HybridTrainerConfig& config,
                           const Stream& stream, MemoryPlaces& places, Communicator* ranks)
    : model_(model),
      config_(config),
      stretches_(config),
      stream_(stream),
      weights_(trainable_parameters(model)),
      places_(places),
      ranks_(ranks),
      consumes_(config.memory.gradients == "consume"),
      consumed_(places.overflow(), stream),
      rounded_([this] { speculation_->wait_until_gradients_are_sent(); }),
      micro_batches_(config.gradient_accumulation.micro_batches) {
  // What a run takes is simulated as if it were one rank's in places.
  const bool is_alone_for_real = ranks_ == nullptr && !stream.device().simulated;
  if (ranks_ != nullptr || (is_alone_for_real && config_.phases.lacks_other_ranks()))
    check_ranks(config_, ranks_ == nullptr ? 1 : ranks_->size());
  const std::int64_t zero = ranks_ == nullptr ? 0 : config_.distributed.zero;
  if (zero > 0) {
    parts_.emplace(weights_, config_.optimizer, *ranks_,
                   sharing_of(config_, bucket_bytes_for(weights_, config_.distributed)), stream_);
  }
  optimizer_ = optimizer_of(config_);
  if (config_.updates_at_once()) immediate_.emplace(weights_, *optimizer_, stream_);
  leaves_ = make_leaf_gradients();
  if (!config_.training.cuda_graphs || stream_.native() == nullptr) return;
  step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, stream_);
  host_step_words_ = Tensor::empty({2}, DType::kI32, MemoryKind::kData, places.host());
}

std::unique_ptr<Optimizer> TrainingStep::optimizer_of(const HybridTrainerConfig& config) {
  const Stream& home = places_.at(config.optimizer_state_home());
  if (!config.phases.lacks_optimizer_state()) {
    auto optimizer = make_optimizer(
        config.optimizer, parameters(), stream_, home, config.device_budget(),
        config.optimizer_state_home() == "file" ? StateTraffic::kBeside : StateTraffic::kInStep);
    if (config.optimizer.slow_momentum == 0) return optimizer;
    auto slow = std::make_unique<SlowNesterov>(std::move(optimizer), parameters(),
                                               config.optimizer.slow_momentum_steps, home);
    slow_momentum_ = slow.get();
    return slow;
  }
  const SpeculationSettings settings{
      .lag = config.phases.lag,
      .device_side = config.phases.device_side,
      .worker_threads = static_cast<int>(config.phases.worker_threads),
      .gradient_bits = config.memory.gradient_bits};
  auto optimizer = std::make_unique<SpeculativeOptimizer>(config.optimizer, parameters(), settings,
                                                          stream_, places_.host().pool(), home);
  speculation_ = optimizer.get();
  return optimizer;
}

TrainingStep::~TrainingStep() {
  late_gradients_.reset();  // before what their gradients lie in
  local_steps_.reset();
  for (Parameter* parameter : weights_) {
    parameter->leave(sink());
    parameter->leave(*leaves_);
  }
}

/// A run without ranks sums its micro-batches as one rank does.
std::unique_ptr<LeafGradients> TrainingStep::make_leaf_gradients() {
  if (ranks_ == nullptr) alone_.emplace();
  Communicator& ranks = ranks_ == nullptr ? *alone_ : *ranks_;
  if (consumes_) {
    return std::make_unique<LoneGradients>(weights_, alone_.value(), sink(), places_.overflow(),
                                           stream_);
  }
  const std::int64_t bucket_bytes = bucket_bytes_for(weights_, config_.distributed);
  if (parts_ && config_.distributed.zero >= 2)
    return std::make_unique<ScatteredGradients>(*parts_, bucket_bytes, stream_);
  auto ordered =
      std::make_unique<OrderedGradients>(weights_, ranks, parts(), bucket_bytes, stream_);
  if (config_.phases.takes_local_steps()) {
    local_steps_ = std::make_unique<LocalSteps>(config_, weights_, *optimizer_, *ordered, stream_);
  } else if (config_.phases.lacks_other_ranks()) {
    late_gradients_ = std::make_unique<LateGradients>(config_, *optimizer_, *ordered,
                                                      parts_ ? &*parts_ : nullptr, stream_);
  }
  return ordered;
}

void TrainingStep::compute_in(DType dtype, bool records) {
  recording_.drop();
  dtype_ = dtype;
  may_record_ = records;
  model_.visit_parameters([&](Parameter& parameter) { parameter.compute_in(dtype_, stream_); });
}

void TrainingStep::publish_weights() {
  if (parts_) return parts_->masters_changed(stream_);
  for (Parameter* parameter : weights_) parameter->refresh_compute_copy(stream_);
}

void TrainingStep::send_weights() {
  if (parts_) parts_->send_changes();
}

void TrainingStep::free_gradients() {
  recording_.drop();
  gradients_.free();
  if (config_.memory.gradient_bits == 16) rounded_.free();
  consumed_.begin();
  leaves_->free();
  for (Parameter* parameter : weights_) {
    parameter->leave(consumed_);
    parameter->leave(*leaves_);
  }
}

void TrainingStep::allocate_gradients() {
  if (consumes_) return;
  if (config_.memory.gradient_bits == 16) return rounded_.allocate(weights_, stream_);
  gradients_.allocate(weights_, stream_);
}

Pass TrainingStep::pass(bool training, std::int64_t first_token) const {
  return {.training = training,
          .dtype = dtype_,
          .seed = static_cast<std::uint64_t>(config_.training.seed),
          .step = static_cast<std::uint64_t>(steps_done_),
          .recompute = config_.memory.recompute,
          .first_token = first_token,
          .step_words = records() ? step_words_ : Tensor{}};
}

/// Not while a profile times each kernel.
bool TrainingStep::records() const {
  return may_record_ && step_words_ && stream_.profile() == nullptr;
}

/// The copy is done before the next one: every step blocks.
void TrainingStep::upload_step_number() {
  const auto step = static_cast<std::uint64_t>(steps_done_);
  host_step_words_.data<std::int32_t>()[0] = static_cast<std::int32_t>(step);
  host_step_words_.data<std::int32_t>()[1] = static_cast<std::int32_t>(step >> 32);
  copy(step_words_, host_step_words_, stream_);
}

std::int64_t TrainingStep::micro_batches_of(const Batch& batch, std::int64_t of_largest) const {
  if (config_.stretches.empty()) return of_largest;
  const std::int64_t most_tokens = stretches_.all().back().batch.tokens() / of_largest;
  std::int64_t count = 1;
  while (batch.size() % count != 0 || batch.tokens() / count > most_tokens) ++count;
  return count;
}

Batch TrainingStep::micro_batch(const Batch& batch, std::int64_t index) const {
  const std::int64_t size = batch.size() / micro_batches_of(batch);
  return batch.examples(index * size, (index + 1) * size);
}

double TrainingStep::scheduled_rate(std::int64_t steps_done) const {
  return hybrid_trainer::learning_rate(config_.schedule, config_.optimizer.learning_rate,
                                       steps_done, config_.training.steps);
}

double TrainingStep::rate_at(std::int64_t steps_done) const {
  return found_factor_ * rate_factor_ * stretches_.at(steps_done).rate_factor *
         scheduled_rate(steps_done);
}

void TrainingStep::set_steps_done(std::int64_t steps) {
  steps_done_ = steps;
  optimizer_->set_orthogonalization_period(stretches_.at(steps).orthogonalization_period.value_or(
      config_.optimizer.orthogonalization_period));
}

double TrainingStep::learning_rate() const { return rate_at(steps_done_); }

std::vector<float> TrainingStep::rates_from(std::int64_t steps_done) const {
  std::vector<float> rates;
  for (std::int64_t i = 0; i < config_.phases.lag; ++i)
    rates.push_back(static_cast<float>(rate_at(steps_done + i)));
  return rates;
}

/// What extrapolates while the learning rate is high only adds noise where it falls.
void TrainingStep::say_slow_share() {
  if (slow_momentum_ == nullptr) return;
  const std::int64_t next = steps_done_ + 1;
  const double peak = config_.optimizer.learning_rate;
  const bool extrapolates = 3 * next < 2 * config_.training.steps && peak > 0;
  slow_momentum_->set_next_share(
      extrapolates ? config_.optimizer.slow_momentum * scheduled_rate(next) / peak : 0);
}

void TrainingStep::require_whole_update() const {
  if (immediate_) immediate_->require_whole();
}

void TrainingStep::apply_gradient() {
  if (immediate_) return;
  say_slow_share();
  const StepPartTimer timer(stream_, StepPart::kUpdate);
  const float scale = clip_scale(gradient_norm_, config_.optimizer.clip_norm);
  if (late_gradients_) late_gradients_->expect_clip_scale(scale);
  optimizer_->step(static_cast<float>(learning_rate()), scale, stream_);
}

ArrivedUpdate TrainingStep::wait_for_late_update(bool finite) {
  const StepPartTimer timer(stream_, StepPart::kUpdate);
  return speculation_->wait_for_late_step(
      {.finite = finite,
       .learning_rate = static_cast<float>(learning_rate()),
       .gradient_scale = clip_scale(gradient_norm_, config_.optimizer.clip_norm),
       .rates_to_come = rates_from(steps_done_ + 1)},
      stream_);
}

void TrainingStep::write_momentum_directions(const std::vector<Tensor>& directions) {
  say_slow_share();
  optimizer_->write_momentum_directions(directions, static_cast<float>(learning_rate()), stream_);
}

}  // namespace hybrid_trainer
