// A step for which memory is too short: in smaller micro-batches, on all ranks alike.
#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/trainer/training_step.h"

namespace hybrid_trainer {

/// Where no others wait, this begins again; else go_through meets what can be met.
template <class Compute>
auto TrainingStep::in_what_fits(const Batch& batch, const Compute& compute) {
  const bool is_own = !leaves_->concern_others() && shares_stay_where_halved();
  while (!is_one_of_several() || is_own) {
    try {
      return compute(batch);
    } catch (const OutOfMemory& error) {
      begin_again(batch, wait_for_way_out(batch, error));
    }
  }
  return compute(batch);
}

/// Throws `error`, which is being handled, where there is none.
StepRetry TrainingStep::wait_for_way_out(const Batch& batch, const OutOfMemory& error) {
  if (immediate_ && immediate_->is_between()) throw;
  const bool elsewhere = error.shortage() && error.shortage()->pool != stream_.pool()->name();
  if (elsewhere && config_.memory.activations == "device") throw;  // smaller ones take as much
  if (optimizer_->leave_device(stream_)) return StepRetry::kSame;
  if (!halved(batch)) throw;
  stream_.synchronize();  // what the failed attempt enqueued
  stream_.pool()->trim();
  return StepRetry::kHalved;
}

/// Twice as many micro-batches, or as many times more as change those of the batch; none where they
/// do not split it.
std::optional<std::int64_t> TrainingStep::halved(const Batch& batch) const {
  const std::int64_t largest =
      config_.stretches.empty() ? batch.size() : stretches_.all().back().batch.batch_size;
  for (std::int64_t count = 2 * own_factor_ * micro_batches_; largest % count == 0; count *= 2) {
    if (micro_batches_of(batch, count) != micro_batches_of(batch)) return count;
  }
  return {};
}

void TrainingStep::begin_again(const Batch& batch, StepRetry retry) {
  if (retry != StepRetry::kHalved) return;
  const std::int64_t count = halved(batch).value();
  if (is_one_of_several() && !leaves_->concern_others()) {
    own_factor_ = count / micro_batches_;
  } else {
    micro_batches_ = count;
  }
}

/// compute(part), a micro-batch of the batch. What several ranks do together in it, each has to come
/// to: where memory is too short for it on this one, it is computed again on one example, and so are
/// the step's later ones, for results that do not count. Then `retry` says so, for all to know at the
/// end.
void TrainingStep::go_through(const Batch& part, const Batch& batch, StepRetry& retry,
                              const std::function<void(const Batch&)>& compute) {
  if (retry == StepRetry::kNone) {
    try {
      return compute(part);
    } catch (const OutOfMemory& error) {
      if (!is_one_of_several()) throw;
      retry = wait_for_way_out(batch, error);
    }
    if (parts_) parts_->repeat_pass();
  }
  compute(part.examples(0, 1));
}

PendingGradient TrainingStep::enqueue_what_fits(const Batch& batch) {
  begin_gradients(weights_, sink(), micro_batches_of(batch));
  const auto enqueue = [this](const Batch& given, const Stream& stream) {
    return enqueue_gradient(given, stream);
  };
  if (records()) {
    require(batch.learnt == 0, "training.cuda_graphs cannot record batches of rows of examples");
    upload_step_number();
    return recording_.run(batch, enqueue, stream_);
  }
  return in_what_fits(batch, [&](const Batch& given) { return enqueue(given, stream_); });
}

/// On all ranks, with their mean loss.
TrainingStep::FittingGradient TrainingStep::wait_for_what_fits(const Batch& batch) {
  for (;;) {
    PendingGradient pending = enqueue_what_fits(batch);
    if (ranks_ == nullptr) {
      const double loss = wait_for_mean_of(pending.losses);
      return {std::move(pending), loss};
    }
    StepRetry retry = pending.retry;
    const double loss =
        leaves_->wait_for_mean_of(pending.losses, micro_batches_of(batch), retry, stream_);
    if (retry == StepRetry::kNone) return {std::move(pending), loss};
    begin_again(batch, retry);
  }
}

double TrainingStep::wait_for_loss(const Batch& batch, std::int64_t examples) {
  for (;;) {
    StepRetry retry = StepRetry::kNone;
    const double loss = in_what_fits(batch, [&](const Batch& given) {
      return enqueue_and_wait_for_loss(given, examples, retry);
    });
    if (is_one_of_several()) retry = wait_for_most_wanted(retry);
    if (retry == StepRetry::kNone) return loss;
    begin_again(batch, retry);
  }
}

double TrainingStep::enqueue_and_wait_for_loss(const Batch& batch, std::int64_t examples,
                                               StepRetry& retry) {
  const std::int64_t size = std::max<std::int64_t>(1, batch.size() / micro_batches_of(batch));
  std::vector<Tensor> losses;
  std::int64_t last = 0;
  for (std::int64_t first = 0; first < examples; first += size) {
    last = std::min(size, examples - first);
    if (parts_) parts_->begin_forward(stream_);
    go_through(batch.examples(first, first + last), batch, retry, [&](const Batch& part) {
      ForwardOnlyTape tape(pass(false, 0));
      losses.push_back(model_.forward(part, 1.0f, tape, stream_));
    });
  }
  return wait_for_mean_of(losses, static_cast<double>(last) / static_cast<double>(size));
}

/// Of all ranks.
StepRetry TrainingStep::wait_for_most_wanted(StepRetry here) const {
  if (stream_.device().simulated) return here;
  StepRetry most = here;
  for (const std::string& theirs : ranks_->host_gather({reinterpret_cast<const char*>(&here), 1}))
    most = std::max(most, static_cast<StepRetry>(theirs.at(0)));
  return most;
}

}  // namespace hybrid_trainer
