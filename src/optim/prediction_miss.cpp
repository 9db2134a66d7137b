#include "src/optim/prediction_miss.h"

#include <cmath>
#include <limits>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// ‖x − y‖², x is overwritten.
double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  kernels::axpy(x, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(x, stream);
}

}  // namespace

void PredictionMiss::wait_and_add(const ExactWeight& weight, const Tensor& predicted,
                                  const Tensor& before, const Tensor& after, const Stream& stream) {
  const double off = wait_for_distance(predicted, after, stream);
  const double size = wait_for_distance(before, after, stream);
  missed += off;
  moved += size;
  if (off <= worst * size) return;
  worst = size > 0 ? off / size : kInfinity;
  worst_weight = weight.parameter->name();
}

double PredictionMiss::error() const {
  if (missed == 0) return 0;
  const bool known = moved > 0 && std::isfinite(missed);
  return known ? std::sqrt(missed / moved) : kInfinity;
}

}  // namespace hybrid_trainer
