#include "src/trainer/step/training_step.h"

#include <algorithm>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/config/config_checks.h"
#include "src/core/profile.h"
#include "src/optim/make_optimizer.h"
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

namespace {

WeightSharing sharing_of(const HybridTrainerConfig& config, std::int64_t bucket_bytes) {
  const DistributedConfig& given = config.distributed;
  return {.apart = given.zero == 3,
          .beside = given.overlap && DeviceMap(config.memory).farthest() == "device",
          .bucket_bytes = bucket_bytes,
          .bytes_ahead = static_cast<std::size_t>(given.overlap ? bucket_bytes : 0)};
}

/// This rank's parts of the weights; null where all ranks have all of them. A collective. Throws
/// ConfigError: see check_ranks.
std::unique_ptr<WeightParts> make_weight_parts(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& weights,
                                               Communicator* ranks, const Stream& stream) {
  // What a run takes is simulated as if it were one rank's in places.
  const bool is_alone_for_real = ranks == nullptr && !stream.device().simulated;
  if (ranks != nullptr || (is_alone_for_real && config.phases.traits().runs_ahead_of_ranks))
    check_ranks(config, ranks == nullptr ? 1 : ranks->size());
  if (ranks == nullptr || config.distributed.zero == 0) return {};
  return std::make_unique<WeightParts>(
      weights, config.optimizer, *ranks,
      sharing_of(config, bucket_bytes_for(weights, config.distributed)), stream);
}

/// The configured optimizer, with its state where the memory settings want it: a
/// SpeculativeOptimizer where updates are delayed. Throws OutOfMemory.
std::unique_ptr<Optimizer> make_step_optimizer(const HybridTrainerConfig& config,
                                               const std::vector<Parameter*>& parameters,
                                               const Stream& stream, MemoryPlaces& places) {
  const Stream& home = places.at(config.optimizer_state_home());
  if (!config.phases.traits().delays_updates) {
    return make_optimizer(
        config.optimizer, parameters, stream, home, config.device_budget(),
        config.optimizer_state_home() == "file" ? Copies::kBeside : Copies::kInStream);
  }
  const SpeculationSettings settings{
      .lag = config.phases.asynchronous_optimizer.delay,
      .device_side = config.phases.asynchronous_optimizer.device_side,
      .worker_threads = static_cast<int>(config.phases.asynchronous_optimizer.worker_threads),
      .gradient_bits = config.memory.gradient_bits};
  return std::make_unique<SpeculativeOptimizer>(config.optimizer, parameters, settings, stream,
                                                places.host().pool(), home);
}

}  // namespace

TrainingStep::TrainingStep(LossModel& model, const HybridTrainerConfig& config,
                           const Stream& stream, MemoryPlaces& places, Communicator* ranks)
    : config_(config),
      stretches_(config),
      rates_(config, stretches_),
      micro_batches_(config, stretches_),
      stream_(stream),
      weights_(trainable_parameters(model)),
      ranks_(ranks),
      scales_(model, config, ranks, stream, places.host()),
      pass_(model, config, rates_, scales_, places, stream),
      parts_(make_weight_parts(config_, weights_, ranks, stream)),
      retry_(config, micro_batches_, ranks, parts(), stream),
      optimizer_(make_step_optimizer(config_, parameters(), stream, places)),
      speculation_(dynamic_cast<SpeculativeOptimizer*>(optimizer_.get())),
      path_(make_gradient_path(config_, {weights_, micro_batches_, pass_, rates_, *optimizer_,
                                         speculation_, ranks, parts(), retry_, places, stream})) {
  set_steps_done(0);
}

TrainingStep::~TrainingStep() = default;

GradientSums& TrainingStep::sums() { return dynamic_cast<GradientSums&>(*path_->leaves()); }

void TrainingStep::compute_in(const Precision& precision, bool records) {
  recording_.drop();
  scales_.set_form(precision.products);
  pass_.compute_in(precision.dtype, records);
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
  path_->free();
}

void TrainingStep::set_steps_done(std::int64_t steps) {
  rates_.set_steps_done(steps);
  optimizer_->set_orthogonalization_period(stretches_.at(steps).orthogonalization_period.value_or(
      config_.optimizer.orthogonalization_period));
  optimizer_->see_progress(rates_.progress());
}

void TrainingStep::tell_if_halved(const Batch& batch, std::int64_t before) const {
  if (on_halving_ && micro_batches_.of(batch) != before) on_halving_(batch, before);
}

GradientMeasurement TrainingStep::wait_for_gradient(const Batch& batch) {
  micro_batches_.require_whole(batch);
  const std::int64_t before = micro_batches_.of(batch);
  path_->prepare(batch);
  PendingGradient pending;
  double loss = 0;
  for (bool is_done = false; !is_done;) {
    pass_.begin_gradient();
    try {
      pending = pass_.records() ? replay(batch) : path_->enqueue(batch, stream_);
    } catch (const OutOfMemory& error) {
      retry_alone(batch, error);
      continue;
    }
    const StepRetry retry = wait_for_ranks(batch, pending, loss);
    is_done = retry == StepRetry::kNone;
    retry_.begin_again(batch, retry, path_->concerns_others());
  }
  for (Parameter* parameter : pending.written)
    if (!parameter->gradient()) parameter->gradient_was_replayed();
  const GradientMeasurement measured = scales_.measure(loss, path_->wait_for_norm(pending));
  if (measured.lowered_loss_scale) {
    recording_.drop();
    pass_.carry_on_states();  // those of forward are as they should be
  }
  tell_if_halved(batch, before);
  return measured;
}

/// The mean loss over all ranks, and what they want where memory was too short on one of them.
StepRetry TrainingStep::wait_for_ranks(const Batch& batch, const PendingGradient& pending,
                                       double& loss) const {
  StepRetry retry = pending.retry;
  loss = ranks_ == nullptr ? pass_.wait_for_mean_of(pending.losses)
                           : path_->leaves()->wait_for_mean_of(
                                 pending.losses, micro_batches_.of(batch), retry, stream_);
  return retry;
}

GradientMeasurement TrainingStep::wait_for_own_gradient(const Batch& batch) {
  const std::int64_t before = micro_batches_.of(batch);
  sums().keep_own(true);
  PendingGradient pending;
  for (bool is_done = false; !is_done;) {
    pass_.begin_gradient();
    try {
      pending = path_->enqueue(batch, stream_);
      is_done = true;
    } catch (const OutOfMemory& error) {
      retry_alone(batch, error);
    }
  }
  path_->measure_own(pending);
  const GradientMeasurement own{.loss = pass_.wait_for_mean_of(pending.losses),
                                .norm = wait_for_norm(pending.squares, stream_)};
  tell_if_halved(batch, before);
  return own;
}

/// As a recording (training.cuda_graphs).
PendingGradient TrainingStep::replay(const Batch& batch) {
  pass_.upload_step_number();
  const auto enqueue = [this](const Batch& given, const Stream& stream) {
    return path_->enqueue(given, stream);
  };
  return recording_.run(batch, enqueue, stream_);
}

/// Throws `error`, which is being handled, where this rank cannot begin again by itself.
void TrainingStep::retry_alone(const Batch& batch, const OutOfMemory& error) {
  const bool concerns_others = path_->concerns_others();
  if (pass_.records() || !retry_.may_begin_again(concerns_others)) throw;
  if (path_->immediate() != nullptr && path_->immediate()->is_between()) throw;
  retry_.begin_again(batch, retry_.wait_for_way_out(batch, error, *optimizer_), concerns_others);
}

double TrainingStep::wait_for_loss(const Batch& batch, std::int64_t examples) {
  const std::int64_t before = micro_batches_.of(batch);
  for (;;) {
    StepRetry retry = StepRetry::kNone;
    double loss = 0;
    try {
      loss = try_loss(batch, examples, retry);
    } catch (const OutOfMemory& error) {
      retry_alone(batch, error);
      continue;
    }
    if (is_one_of_several()) retry = retry_.wait_for_most_wanted(retry);
    if (retry == StepRetry::kNone) return tell_if_halved(batch, before), loss;
    retry_.begin_again(batch, retry, path_->concerns_others());
  }
}

double TrainingStep::try_loss(const Batch& batch, std::int64_t examples, StepRetry& retry) {
  const std::int64_t size = std::max<std::int64_t>(1, batch.size() / micro_batches_.of(batch));
  std::vector<Tensor> losses;
  std::int64_t last = 0;
  for (std::int64_t first = 0; first < examples; first += size) {
    last = std::min(size, examples - first);
    if (parts_) parts_->begin_forward(stream_);
    const Batch part = batch.examples(first, first + last);
    for (bool is_done = false; !is_done;) {
      try {
        losses.push_back(pass_.enqueue_forward(MemoryRetry::computed_part(part, retry)));
        is_done = true;
      } catch (const OutOfMemory& error) {
        retry_.compute_less(batch, error, retry, *optimizer_);
      }
    }
  }
  return pass_.wait_for_mean_of(losses, static_cast<double>(last) / static_cast<double>(size));
}

void TrainingStep::require_whole_update() {
  if (path_->immediate() != nullptr) path_->immediate()->require_whole();
}

void TrainingStep::finish_batch() {
  pass_.carry_on_states();
  if (scales_.wait_for_update()) recording_.drop();
}

void TrainingStep::apply_gradient() {
  finish_batch();
  if (path_->immediate() != nullptr) return;
  const StepPartTimer timer(stream_, StepPart::kUpdate);
  optimizer_->step(static_cast<float>(rates_.rate()), scales_.update_scale(), stream_);
}

}  // namespace hybrid_trainer
