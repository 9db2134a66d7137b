// Forward and backward of a step, over all of its micro-batches.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <unordered_set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/recomputation.h"
#include "hybrid_trainer/optim/gradient_norm.h"
#include "src/trainer/late_gradients.h"
#include "src/trainer/local_steps.h"
#include "src/trainer/training_step.h"

namespace hybrid_trainer {

GradientMeasurement TrainingStep::wait_for_gradient(const Batch& batch) {
  if (batch.size() % micro_batches_of(batch) != 0) {
    throw ShapeMismatch(concat("a batch of ", batch.size(), " examples does not split into ",
                               micro_batches(), " micro-batches"));
  }
  if (!sums_leaves(micro_batches_of(batch))) allocate_gradients();
  const auto [pending, loss] = wait_for_what_fits(batch);
  for (Parameter* parameter : pending.written) {
    if (!parameter->gradient()) parameter->gradient_was_replayed();
  }
  gradient_norm_ = immediate_ ? immediate_->end() : wait_for_norm_of(pending);
  return {.loss = loss, .norm = gradient_norm_};
}

/// Their mean loss, and the norm of what they add to the gradient of all ranks' mean.
GradientMeasurement TrainingStep::wait_for_own_part(const Batch& batch) {
  dynamic_cast<OrderedGradients&>(*leaves_).keep_own(true);
  PendingGradient pending = enqueue_what_fits(batch);
  if (parts_) measure_gradients(pending, stream_);  // whole ones, of this rank alone
  return {.loss = wait_for_mean_of(pending.losses),
          .norm = wait_for_norm(pending.squares, stream_)};
}

double TrainingStep::wait_for_own_gradient(const Batch& batch) {
  const GradientMeasurement own = wait_for_own_part(batch);
  late_gradients_->send(own.loss * leaves_->own_share(micro_batches_of(batch)), own.norm,
                        learning_rate());
  return own.loss;
}

LocalStep TrainingStep::wait_for_local_step(const Batch& batch) {
  const double share = leaves_->own_share(micro_batches_of(batch));
  GradientMeasurement own = wait_for_own_part(batch);
  own.norm /= share;
  LocalStep step = local_steps_->step(own, share, learning_rate());
  step.own = own;
  return step;
}

double TrainingStep::wait_for_norm_of(const PendingGradient& pending) {
  if (!parts_) return wait_for_norm(pending.squares, stream_);
  std::vector<Tensor> gradients;
  for (const Parameter* part : parts_->parameters()) gradients.push_back(part->gradient());
  double sum = 0;
  for (const auto& chunks : parts_->wait_for_chunk_dots(gradients, gradients, stream_))
    sum += std::accumulate(chunks.begin(), chunks.end(), 0.0);
  return std::sqrt(sum);
}

double TrainingStep::wait_for_mean_of(const std::vector<Tensor>& losses, double last_share) const {
  double sum = 0;
  for (const Tensor& loss : losses)
    sum += kernels::wait_for_value(loss, stream_) * (&loss == &losses.back() ? last_share : 1);
  return sum / (static_cast<double>(losses.size()) - 1 + last_share);
}

/// One alone does as several do on a processor, so that it has the same bits, unless gradients are
/// rounded.
bool TrainingStep::sums_leaves(std::int64_t micro_batches) const {
  if (ranks_ != nullptr || late_gradients_ || local_steps_) return true;
  return micro_batches > 1 && stream_.device().type == DeviceType::kCpu &&
         config_.memory.gradient_bits == 32;
}

/// Forward and backward of micro-batch number `index` of `parts`.
void TrainingStep::enqueue_micro_batch(const Batch& part, std::int64_t index, std::int64_t parts,
                                       PendingGradient& pending, const Stream& stream) {
  const float scale = 1.0f / static_cast<float>(parts);
  const auto tape =
      make_tape(pass(true, index * part.tokens()), least_rebuild(stream.device()),
                {places_.at(config_.memory.activations), config_.memory.activation_bits,
                 config_.memory.activations == "file"},
                stream_);
  {
    const StepPartTimer timer(stream, StepPart::kForward);
    pending.losses.push_back(model_.forward(part, scale, *tape, stream));
  }
  if (immediate_) immediate_->observe_loss(kernels::wait_for_value(pending.losses.back(), stream));
  const StepPartTimer timer(stream, StepPart::kBackward);
  model_.backward(part, *tape, stream);
}

void TrainingStep::measure_gradients(PendingGradient& pending, const Stream& stream) const {
  const StepPartTimer timer(stream, StepPart::kUpdate);
  pending.squares = gradient_square_sums(weights_, stream);
  std::copy_if(weights_.begin(), weights_.end(), std::back_inserter(pending.written),
               [](const Parameter* parameter) { return parameter->gradient().defined(); });
}

void TrainingStep::begin_sinks() {
  consumed_.begin();
  if (!immediate_) return;
  say_slow_share();
  immediate_->begin(static_cast<float>(learning_rate()));
}

PendingGradient TrainingStep::enqueue_gradient(const Batch& batch, const Stream& stream) {
  const std::int64_t parts = micro_batches_of(batch);
  if (sums_leaves(parts)) return enqueue_leaves(batch, stream);
  leaves_->free();
  begin_sinks();
  begin_gradients(weights_, sink(), parts);
  PendingGradient pending;
  for (std::int64_t i = 0; i < parts; ++i)
    enqueue_micro_batch(micro_batch(batch, i), i, parts, pending, stream);
  end_gradients(weights_, stream);
  if (!immediate_) measure_gradients(pending, stream);
  return pending;
}

/// Micro-batch number `leaf`, which counts only where it is this rank's in the round.
void TrainingStep::enqueue_leaf(const Batch& batch, std::int64_t leaf, bool counts,
                                PendingGradient& pending, const Stream& stream) {
  const std::int64_t leaves = micro_batches_of(batch);
  const std::size_t losses = pending.losses.size();
  const auto compute = [&](const Batch& part) {
    pending.losses.resize(losses);
    leaves_->begin_leaf(counts ? std::optional(leaf) : std::nullopt, leaves);
    begin_gradients(weights_, *leaves_, 1);
    enqueue_micro_batch(part, leaf, leaves, pending, stream);
    end_gradients(weights_, stream);
    leaves_->end_leaf();
  };
  if (leaves_->concern_others()) {
    go_through(micro_batch(batch, leaf), batch, pending.retry, compute);
  } else {
    compute(micro_batch(batch, leaf));
  }
  if (!counts) pending.losses.resize(losses);
}

PendingGradient TrainingStep::enqueue_leaves(const Batch& batch, const Stream& stream) {
  const std::int64_t leaves = micro_batches_of(batch), rounds = leaves_->rounds(leaves);
  const std::vector<std::int64_t> mine = leaves_->leaves_of_rank(leaves, leaves_->ranks().rank());
  gradients_.free();
  leaves_->free();
  begin_sinks();
  PendingGradient pending;
  std::unordered_set<Parameter*> written;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const bool counts = round < static_cast<std::int64_t>(mine.size());
    if (parts_) parts_->begin_pass(round + 1 < rounds);
    enqueue_leaf(batch, counts ? mine[static_cast<std::size_t>(round)] : mine.back(), counts,
                 pending, stream);
    std::copy_if(weights_.begin(), weights_.end(), std::inserter(written, written.end()),
                 [](const Parameter* weight) { return weight->has_gradient(); });
  }
  if (pending.retry != StepRetry::kNone) {
    leaves_->settle();
    return pending;
  }
  leaves_->reduce(leaves);
  for (Parameter* weight : written) {
    if (!weight->has_gradient()) weight->gradient_was_replayed();
  }
  if (!parts_) {
    if (!immediate_) measure_gradients(pending, stream);
    return pending;
  }
  for (Parameter* part : parts_->parameters()) {
    if (part->elements() == 0) continue;
    part->begin_gradient(*leaves_, 1);
    part->gradient_was_replayed();
  }
  return pending;
}

}  // namespace hybrid_trainer
