#include "src/trainer/late_gradients.h"

#include <cmath>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/gradient_norm.h"

namespace hybrid_trainer {
namespace {

/// ‖x − y‖². Blocks.
double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  const Tensor difference = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
  kernels::axpy(difference, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(difference, stream);
}

}  // namespace

LateGradients::LateGradients(const HybridTrainerConfig& config,
                             const std::vector<Parameter*>& weights, Optimizer& optimizer,
                             OrderedGradients& leaves, const Stream& stream)
    : config_(config.phases),
      clip_norm_(config.optimizer.clip_norm),
      parameters_(weights),
      optimizer_(optimizer),
      leaves_(leaves),
      stream_(stream),
      weights_(config.optimizer, weights, optimizer, config.phases.device_side,
               leaves.own_share(config.gradient_accumulation.micro_batches), stream) {}

void LateGradients::send(double loss, double norm, double learning_rate) {
  weights_.begin();
  Flight flight;
  flight.own = leaves_.take();
  flight.is_finite = std::isfinite(norm) && std::isfinite(loss);
  flight.learning_rate = learning_rate;
  const Tensor sent = Tensor::empty_like(flight.own, MemoryKind::kGradients, stream_);
  copy(sent, flight.own, stream_);
  const std::vector<double> words{loss, asks_to_stop_ ? 1.0 : 0.0, std::exchange(missed_, 0),
                                  std::exchange(moved_, 0)};
  flight.sum = LateSum(sent, words, leaves_.ranks(), stream_);
  flights_.push_back(std::move(flight));
}

std::optional<GradientMeasurement> LateGradients::wait_for_oldest(bool all) {
  const std::size_t stays = all ? 0 : static_cast<std::size_t>(config_.lag);
  if (flights_.size() <= stays) return {};
  arrived_ = std::move(flights_.front());
  flights_.pop_front();
  LateSum& sum = arrived_->sum;
  leaves_.show(sum.wait());
  was_asked_to_stop_ |= sum.sum_of(kStops) > 0;
  const double missed = sum.sum_of(kMissed), moved = sum.sum_of(kMoved);
  error_.reset();
  if (moved > 0) error_ = std::sqrt(missed / moved);
  arrived_norm_ = wait_for_norm(gradient_square_sums(parameters_, stream_), stream_);
  return GradientMeasurement{.loss = sum.sum_of(kLoss), .norm = arrived_norm_};
}

LateUpdate LateGradients::apply(bool finite) {
  if (finite) {
    const float scale = clip_scale(arrived_norm_, clip_norm_);
    weights_.with_exact(
        [&] { optimizer_.step(static_cast<float>(arrived_->learning_rate), scale, stream_); });
    clip_scale_ = scale;
    measure_prediction(*arrived_);
  }
  arrived_.reset();
  leaves_.free();
  return {error_, worst_weight_, true, static_cast<std::int64_t>(flights_.size())};
}

/// What the last of the ranks' updates came to, against what this rank had expected.
void LateGradients::measure_prediction(const Flight& arrived) {
  if (!arrived.predicted) return;
  const Tensor now = weights_.slices(true);
  double worst = 0;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::int64_t elements = weights_.slice_elements()[i];
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

void LateGradients::predict() {
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
}

void LateGradients::end() {
  require(flights_.empty(), "gradients under way are waited for first");
  arrived_.reset();
  leaves_.free();
  leaves_.keep_own(false);
  weights_.end();
  was_asked_to_stop_ = false;
  missed_ = moved_ = 0;
}

void LateGradients::drop() {
  while (wait_for_oldest(true)) leaves_.free();
  end();
}

}  // namespace hybrid_trainer
