#include "hybrid_trainer/kernels/grid_loss.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/token_batch.h"
#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/distance_loss.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kBoxNumbers = 4, kFirstClass = 1 + kBoxNumbers;

void check_classes(const std::int32_t* wanted, std::int64_t cells, std::int64_t classes) {
  for (std::int64_t n = 0; n < cells; ++n) {
    if (wanted[n] == kNoTarget || (wanted[n] >= 0 && wanted[n] < classes)) continue;
    throw DataError(concat("grid_loss: the class of cell ", n, " is ", wanted[n], ", want 0 to ",
                           classes - 1, ", or ", kNoTarget, " where there is no object"));
  }
}

/// log(1 + e^x).
inline float log_of_one_plus_power(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

/// The cross entropy of logits, which become its gradient times `scale` where it `writes`.
inline float class_loss(float* logits, std::int64_t classes, std::int64_t wanted, bool writes,
                        float scale) {
  float highest = logits[0], sum = 0;
  for (std::int64_t i = 1; i < classes; ++i) highest = std::max(highest, logits[i]);
  for (std::int64_t i = 0; i < classes; ++i) sum += std::exp(logits[i] - highest);
  const float loss = std::log(sum) - (logits[wanted] - highest);
  if (!writes) return loss;
  for (std::int64_t i = 0; i < classes; ++i)
    logits[i] = (std::exp(logits[i] - highest) / sum - (i == wanted ? 1.0f : 0.0f)) * scale;
  return loss;
}

/// The loss of a cell with an object, whose row becomes its gradient where `scale` is not 0.
inline float object_loss(float* row, std::int64_t classes, std::int64_t wanted, const float* box,
                         const GridLossSpec& spec, float scale) {
  float loss = spec.positive_weight * log_of_one_plus_power(-row[0]);
  if (scale != 0.0f) row[0] = -scale * spec.positive_weight / (1.0f + std::exp(row[0]));
  float of_box = 0;
  for (std::int64_t i = 0; i < kBoxNumbers; ++i) {
    const LossAndSlope at = smooth_distance(row[1 + i] - box[i], spec.beta);
    of_box += at.loss;
    if (scale != 0.0f) row[1 + i] = at.slope * spec.box_weight * scale;
  }
  loss += spec.box_weight * of_box;
  return loss + spec.class_weight * class_loss(row + kFirstClass, classes, wanted, scale != 0.0f,
                                               scale * spec.class_weight);
}

inline float empty_loss(float* row, std::int64_t columns, float scale) {
  const float loss = log_of_one_plus_power(row[0]);
  if (scale == 0.0f) return loss;
  row[0] = scale / (1.0f + std::exp(-row[0]));
  std::fill(row + 1, row + columns, 0.0f);
  return loss;
}

}  // namespace

void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream&) {
  const std::int64_t cells = x.size(0), columns = x.size(1);
  float *const loss = losses.data<float>(), *const rows = x.data<float>();
  const std::int32_t* const wanted = classes.data<std::int32_t>();
  const float* const box = boxes.data<float>();
  check_classes(wanted, cells, columns - kFirstClass);
  parallel_rows(cells, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      float* const row = rows + n * columns;
      loss[n] = wanted[n] == kNoTarget ? empty_loss(row, columns, gradient_scale)
                                       : object_loss(row, columns - kFirstClass, wanted[n],
                                                     box + n * kBoxNumbers, spec, gradient_scale);
    }
  });
}

}  // namespace hybrid_trainer::kernels::cpu
