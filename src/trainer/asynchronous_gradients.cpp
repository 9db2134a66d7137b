#include <cmath>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/trainer/pending_work.h"

namespace hybrid_trainer {

namespace {

/// ‖x − y‖². Blocks.
double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  const Tensor difference = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  kernels::axpy(difference, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(difference, stream);
}

constexpr const char* kClipScale = "trainer.expected_clip_scale";

}  // namespace

AsynchronousGradients::AsynchronousGradients(const HybridTrainerConfig& config, TrainingStep& step)
    : delay_(config.phases.asynchronous_gradients.delay),
      clip_norm_(config.optimizer.clip_norm),
      step_(step),
      leaves_(step.ordered_gradients()),
      parts_(step.parts()),
      parameters_(step.parameters()),
      stream_(step.stream()),
      weights_(config.optimizer, parameters_, step.optimizer(),
               {.device_side = config.phases.asynchronous_gradients.device_side,
                .share = leaves_.own_share(config.gradient_accumulation.micro_batches),
                .in_same_memory = parts_ != nullptr},
               stream_) {}

double AsynchronousGradients::wait_for_own_gradient(const Batch& batch) {
  const GradientMeasurement own = step_.wait_for_own_gradient(batch);
  send(own.loss * step_.own_share(batch), own.norm);
  return own.loss;
}

/// Starts the sum in `leaves`, of this rank's own micro-batches; with parts only when weights have
/// been predicted. `loss`: what they add to the mean over all ranks' micro-batches.
void AsynchronousGradients::send(double loss, double norm) {
  weights_.begin();
  Flight flight;
  const Tensor whole = leaves_.take();
  if (parts_ != nullptr) {
    flight.own = leaves_.own_parts_of(whole);
    flight.sent = whole;
  } else {
    flight.own = whole;
    flight.sent = Tensor::empty_like(whole, MemoryKind::kGradients, stream_);
    copy(flight.sent, whole, stream_);
  }
  flight.words = {loss, asks_to_stop_ ? 1.0 : 0.0, std::exchange(missed_, 0),
                  std::exchange(moved_, 0)};
  flight.is_finite = std::isfinite(norm) && std::isfinite(loss);
  flight.learning_rate = step_.rates().rate();
  flights_.push_back(std::move(flight));
  if (parts_ == nullptr) begin_sums();
}

void AsynchronousGradients::begin_sums() {
  for (Flight& flight : flights_) {
    if (!flight.sent) continue;
    const Tensor sent = std::exchange(flight.sent, {});
    Communicator& ranks = leaves_.ranks();
    flight.sum = parts_ == nullptr
                     ? LateSum(sent, flight.words, ranks, stream_)
                     : LateSum(sent, leaves_.shared_elements(), flight.words, ranks, stream_);
  }
}

std::optional<GradientMeasurement> AsynchronousGradients::wait_for_gradient(bool all) {
  if (all) begin_sums();  // of a step that ended before it predicted
  const std::size_t stays = all ? 0 : static_cast<std::size_t>(delay_);
  if (flights_.size() <= stays) return {};
  arrived_ = std::move(flights_.front());
  flights_.pop_front();
  LateSum& sum = arrived_->sum;
  const Tensor total = sum.wait();
  leaves_.show(parts_ == nullptr ? total : leaves_.own_parts_of(total));
  was_asked_to_stop_ |= sum.sum_of(kStops) > 0;
  const double missed = sum.sum_of(kMissed), moved = sum.sum_of(kMoved);
  error_.reset();
  if (moved > 0) error_ = std::sqrt(missed / moved);
  arrived_norm_ = parts_ == nullptr
                      ? wait_for_norm(gradient_square_sums(parameters_, stream_), stream_)
                      : std::sqrt(sum.sum_of_squares());
  return GradientMeasurement{.loss = sum.sum_of(kLoss), .norm = arrived_norm_};
}

DelayedUpdate AsynchronousGradients::apply(bool finite) {
  if (finite) {
    const float scale = clip_scale(arrived_norm_, clip_norm_);
    weights_.with_exact([&] {
      step_.optimizer().step(static_cast<float>(arrived_->learning_rate), scale, stream_);
    });
    clip_scale_ = scale;
    measure_prediction(*arrived_);
  }
  arrived_.reset();
  leaves_.free();
  return {error_, worst_weight_, true, static_cast<std::int64_t>(flights_.size())};
}

/// What the last of the ranks' updates came to, against what this rank had expected.
void AsynchronousGradients::measure_prediction(const Flight& arrived) {
  if (!arrived.predicted) return;
  const Tensor now = weights_.slices(true);
  double worst = 0;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::int64_t elements = weights_.slice_elements()[i];
    if (elements == 0) continue;  // another rank's
    const auto slice = [&](const Tensor& all) { return all.rows(first, first + elements); };
    const double scale =
        static_cast<double>(parameters_[i]->elements()) / static_cast<double>(elements);
    const double missed = scale * wait_for_distance(slice(arrived.predicted), slice(now), stream_);
    const double moved = scale * wait_for_distance(slice(arrived.before), slice(now), stream_);
    missed_ += missed;
    moved_ += moved;
    if (missed > worst * moved) {
      worst = missed / moved;
      worst_weight_ = parameters_[i]->name();
    }
    first += elements;
  }
}

void AsynchronousGradients::predict_weights() {
  std::vector<OwnGradient> gradients;
  for (const Flight& flight : flights_) {
    if (!flight.is_finite) continue;  // no update will be made by it
    gradients.push_back({[this, own = flight.own](const Parameter& parameter) {
                           return leaves_.part_of(own, parameter);
                         },
                         static_cast<float>(flight.learning_rate), clip_scale_});
  }
  weights_.predict(gradients);
  flights_.back().before = weights_.slices(true);
  flights_.back().predicted = weights_.slices(false);
  if (parts_ == nullptr) return;
  parts_->masters_changed(stream_);
  parts_->send_changes();
  begin_sums();
}

void AsynchronousGradients::exchange_whole_weights() {
  weights_.exchange_values();
  parts_->masters_changed(stream_);
  parts_->send_changes();
}

void AsynchronousGradients::with_exact(const std::function<void()>& use) {
  if (parts_ == nullptr || !weights_.are_in_place()) return weights_.with_exact(use);
  exchange_whole_weights();
  try {
    use();
  } catch (const Diverged&) {
    exchange_whole_weights();
    throw;
  }
  exchange_whole_weights();
}

void AsynchronousGradients::wait_for_exact_weights() {
  require(flights_.empty(), "wait for pending gradients first");
  arrived_.reset();
  leaves_.free();
  leaves_.keep_own(false);
  const bool were_in_place = weights_.are_in_place();
  weights_.end();
  if (parts_ != nullptr && were_in_place) parts_->masters_changed(stream_);
  was_asked_to_stop_ = false;
  missed_ = moved_ = 0;
}

void AsynchronousGradients::drop() {
  while (wait_for_gradient(true)) leaves_.free();
  wait_for_exact_weights();
}

std::optional<bool> AsynchronousGradients::vote_to_stop(bool asks) {
  if (flights_.empty()) return {};
  asks_to_stop_ = asks;
  return was_asked_to_stop_;
}

void AsynchronousGradients::save(State& state) const {
  state.reals[kClipScale] = static_cast<double>(clip_scale_);
}

void AsynchronousGradients::load(const State& state, const Precision&) {
  if (state.reals.contains(kClipScale)) clip_scale_ = static_cast<float>(state.real(kClipScale));
}

}  // namespace hybrid_trainer
