#include <algorithm>

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/cuda/real.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <class T>
struct SinkTensors {
  const T *dy, *y;
  const float *log_sum_exp, *sinks;
  std::int64_t rows, length, heads, head_size;  // rows: of all sequences
};

/// sums[head, part] = Σ e^(sink − log_sum_exp)·⟨dy, y⟩ over a head's share of the rows, a block for
/// each. Warps take rows by turns, and lanes the columns of one.
template <class T>
__global__ void sinks_kernel(float* sums, SinkTensors<T> tensors) {
  const auto [dy, y, log_sum_exp, sinks, rows, length, heads, size] = tensors;
  const std::int64_t head = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const float sink = sinks[head];
  float sum = 0;
  for (std::int64_t row = rows * part / parts + warp; row < rows * (part + 1) / parts;
       row += kWarps) {
    const std::int64_t at = (row * heads + head) * size;
    float product = 0;
    for (std::int64_t i = lane; i < size; i += kWarp)
      product += load(dy + at + i) * load(y + at + i);
    const std::int64_t query = (row / length * heads + head) * length + row % length;
    sum += expf(sink - log_sum_exp[query]) * product;
  }
  sum = reduce_block(sum, Sum{}, 0.0f);
  if (threadIdx.x == 0) sums[head * parts + part] = sum;
}

__global__ void combine_sinks_kernel(float* dsinks, const float* sums, std::int64_t heads,
                                     std::int64_t parts, bool adds) {
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (head >= heads) return;
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += sums[head * parts + part];
  dsinks[head] = (adds ? dsinks[head] : 0.0f) - sum;
}

}  // namespace

void attention_sinks_backward(const Tensor& dsinks, GradientMode mode, const Tensor& dy,
                              const Tensor& y, const Tensor& log_sum_exp, const Tensor& sinks,
                              const Stream& stream) {
  constexpr std::int64_t kRowsOfPart = 32 * kWarps, kMostParts = 64;
  const std::int64_t heads = sinks.size(0), rows = y.size(0) * y.size(1);
  const std::int64_t parts =
      std::clamp<std::int64_t>((rows + kRowsOfPart - 1) / kRowsOfPart, 1, kMostParts);
  const Tensor sums = empty_workspace(heads * parts, DType::kF32, stream);
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const Grid grid{.x = static_cast<unsigned int>(heads),
                    .y = static_cast<unsigned int>(parts),
                    .threads = kThreads};
    const SinkTensors<T> tensors{.dy = dy.data<T>(),
                                 .y = y.data<T>(),
                                 .log_sum_exp = log_sum_exp.data<float>(),
                                 .sinks = sinks.data<float>(),
                                 .rows = rows,
                                 .length = y.size(1),
                                 .heads = heads,
                                 .head_size = y.size(2) / heads};
    launch(stream, "attention_sinks_backward", sinks_kernel<T>, grid, sums.data<float>(), tensors);
  });
  launch(stream, "attention_sinks_combine", combine_sinks_kernel, grid_for(heads),
         dsinks.data<float>(), sums.data<float>(), heads, parts, mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cuda
