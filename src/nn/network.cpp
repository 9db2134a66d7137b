#include "hybrid_trainer/nn/network.h"

namespace hybrid_trainer {

PreferenceLoss::Measures& PreferenceLoss::Measures::operator+=(const Measures& other) {
  reward_chosen += other.reward_chosen;
  reward_rejected += other.reward_rejected;
  right += other.right;
  pairs += other.pairs;
  return *this;
}

PreferenceLoss::PreferenceWeights PreferenceLoss::weigh(const Tensor& losses, const Batch& batch,
                                                        bool counts, const Stream& stream) {
  const Tensor& halves = batch.at("halves");
  const Shape& shape = halves.shape();
  const auto empty = [&](DType dtype) {
    return Tensor::empty(shape, dtype, MemoryKind::kWorkspace, stream);
  };
  const Tensor pair_losses = empty(DType::kF32), weights = empty(DType::kF32);
  if (!sums_ || sums_.shape() != shape) sums_ = empty(DType::kF64);
  if (!measures_) clear(stream);
  kernels::preference_loss({.losses = losses.view(shape),
                            .halves = halves,
                            .references = batch.at("references"),
                            .pair_losses = pair_losses,
                            .weights = weights,
                            .sums = sums_,
                            .measures = counts ? measures_ : Tensor{}},
                           form_, stream);
  const Shape rows{shape.elements()};
  return {pair_losses.view(rows), weights.view(rows)};
}

void PreferenceLoss::clear(const Stream& stream) {
  if (measures_) return fill_zero(measures_, stream);
  measures_ =
      Tensor::zeros({kernels::kPreferenceMeasures}, DType::kF64, MemoryKind::kWorkspace, stream);
}

PreferenceLoss::Measures PreferenceLoss::take(const Stream& stream) {
  if (!measures_) return {};
  const Tensor here = wait_for_host(measures_, stream);
  const double* const sums = here.data<double>();
  const Measures taken{sums[0], sums[1], sums[2], sums[3]};
  fill_zero(measures_, stream);
  return taken;
}

std::int64_t LossModel::segment_for(std::int64_t wanted, std::int64_t time) const {
  constexpr std::int64_t kDefaultSegment = 2048;
  if (wanted > 0 && supports_segments()) return wanted;
  const bool is_usual = carries_state() && supports_segments();
  return time > kMaxUnsegmentedTime && is_usual ? kDefaultSegment : 0;
}

std::int64_t LossModel::parameter_count() {
  std::int64_t sum = 0;
  visit_parameters([&](const Parameter& parameter) { sum += parameter.elements(); });
  return sum;
}

double LossModel::step_flops(const Batch& batch) {
  double of_token = 0;
  visit_parameters([&](const Parameter& parameter) {
    of_token += (parameter.trainable() ? 6.0 : 4.0) * static_cast<double>(parameter.elements());
  });
  return of_token * static_cast<double>(batch.tokens());
}

}  // namespace hybrid_trainer
