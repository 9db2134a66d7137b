// The losses of a grid's cells. A thread computes a cell.

#include "hybrid_trainer/kernels/grid_loss.h"

#include "hybrid_trainer/core/token_batch.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/distance_loss.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kBoxNumbers = 4, kFirstClass = 1 + kBoxNumbers;

/// The cross entropy of logits, which become its gradient times `scale` where it `writes`.
__device__ float class_loss(float* logits, std::int64_t classes, std::int64_t wanted, bool writes,
                            float scale) {
  float highest = logits[0], sum = 0;
  for (std::int64_t i = 1; i < classes; ++i) highest = fmaxf(highest, logits[i]);
  for (std::int64_t i = 0; i < classes; ++i) sum += expf(logits[i] - highest);
  const float loss = logf(sum) - (logits[wanted] - highest);
  if (!writes) return loss;
  for (std::int64_t i = 0; i < classes; ++i)
    logits[i] = (expf(logits[i] - highest) / sum - (i == wanted ? 1.0f : 0.0f)) * scale;
  return loss;
}

__device__ float object_loss(float* row, std::int64_t classes, std::int64_t wanted,
                             const float* box, const GridLossSpec& spec, float scale) {
  float loss = spec.positive_weight * softplus(-row[0]);
  if (scale != 0.0f) row[0] = -scale * spec.positive_weight / (1.0f + expf(row[0]));
  float of_box = 0;
  for (int i = 0; i < kBoxNumbers; ++i) {
    const LossAndSlope at = smooth_distance(row[1 + i] - box[i], spec.beta);
    of_box += at.loss;
    if (scale != 0.0f) row[1 + i] = at.slope * spec.box_weight * scale;
  }
  loss += spec.box_weight * of_box;
  return loss + spec.class_weight * class_loss(row + kFirstClass, classes, wanted, scale != 0.0f,
                                               scale * spec.class_weight);
}

__device__ float empty_loss(float* row, std::int64_t columns, float scale) {
  const float loss = softplus(row[0]);
  if (scale == 0.0f) return loss;
  row[0] = scale / (1.0f + expf(-row[0]));
  for (std::int64_t i = 1; i < columns; ++i) row[i] = 0.0f;
  return loss;
}

__global__ void grid_loss_kernel(float* losses, float* x, const std::int32_t* classes,
                                 const float* boxes, std::int64_t cells, std::int64_t columns,
                                 GridLossSpec spec, float gradient_scale) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= cells) return;
  float* const row = x + n * columns;
  const std::int64_t wanted = classes[n], count = columns - kFirstClass;
  if (wanted == kNoTarget) {
    losses[n] = empty_loss(row, columns, gradient_scale);
  } else if (wanted < 0 || wanted >= count) {
    losses[n] = NAN;
  } else {
    losses[n] = object_loss(row, count, wanted, boxes + n * kBoxNumbers, spec, gradient_scale);
  }
}

}  // namespace

void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream) {
  launch(stream, "grid_loss", grid_loss_kernel, grid_for(x.size(0)), losses.data<float>(),
         x.data<float>(), classes.data<std::int32_t>(), boxes.data<float>(), x.size(0), x.size(1),
         spec, gradient_scale);
}

}  // namespace hybrid_trainer::kernels::cuda
