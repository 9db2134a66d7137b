#include "hybrid_trainer/nn/preference_loss.h"

namespace hybrid_trainer {

PreferenceLoss::Measures& PreferenceLoss::Measures::operator+=(const Measures& other) {
  reward_chosen += other.reward_chosen;
  reward_rejected += other.reward_rejected;
  right += other.right;
  pairs += other.pairs;
  return *this;
}

PreferenceLoss::Weighed PreferenceLoss::weigh(const Tensor& losses, const Batch& batch, bool counts,
                                              const Stream& stream) {
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

}  // namespace hybrid_trainer
