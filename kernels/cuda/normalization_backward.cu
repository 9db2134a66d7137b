#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/cuda/normalization_backward.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// For any number of columns and any alignment, summing in the block's line throughout.
template <class T>
__global__ void layer_norm_backward_any_kernel(NormBackward<T> at) {
  float* const dweight = at.lines + blockIdx.x * 2 * at.columns;
  float* const dbias = dweight + at.columns;
  for (std::int64_t i = threadIdx.x; i < 2 * at.columns; i += blockDim.x) dweight[i] = 0;
  __syncthreads();
  for (std::int64_t n = blockIdx.x; n < at.rows; n += gridDim.x) {
    const float mean = at.mean[n], rstd = at.rstd[n];
    float sum = 0, projection = 0;
    for (std::int64_t i = threadIdx.x; i < at.columns; i += blockDim.x) {
      const float gradient = load(at.dy + n * at.columns + i);
      const float normalized = (load(at.x + n * at.columns + i) - mean) * rstd;
      dweight[i] += gradient * normalized;
      dbias[i] += gradient;
      sum += gradient * at.weight[i];
      projection += gradient * at.weight[i] * normalized;
    }
    sum = reduce_block(sum, Sum{}, 0.0f) / static_cast<float>(at.columns);
    projection = reduce_block(projection, Sum{}, 0.0f) / static_cast<float>(at.columns);
    for (std::int64_t i = threadIdx.x; i < at.columns; i += blockDim.x) {
      const std::int64_t here = n * at.columns + i;
      const float normalized = (load(at.x + here) - mean) * rstd;
      const float value =
          (load(at.dy + here) * at.weight[i] - sum - normalized * projection) * rstd;
      store(at.dx + here, at.accumulate ? load(at.dx + here) + value : value);
    }
  }
}

/// dweight and dbias (+)= the sums over all lines: 32 columns per block, 32 threads per column.
__global__ void add_lines_kernel(float* dweight, float* dbias, const float* lines,
                                 std::int64_t count, std::int64_t columns, bool accumulate) {
  __shared__ float of_group[kWarp][kWarp + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < 2 * columns) {
#pragma unroll 4
    for (std::int64_t i = group; i < count; i += kWarp) sum += lines[i * 2 * columns + column];
  }
  of_group[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= 2 * columns) return;
  float total = 0;
  for (int i = 0; i < kWarp; ++i) total += of_group[i][lane];
  float* const to = column < columns ? dweight + column : dbias + (column - columns);
  *to = accumulate ? *to + total : total;
}

/// Computes dx and the lines.
template <class T>
void launch_layer_norm_rows(const NormBackward<T>& at, std::int64_t blocks, const Stream& stream) {
  if (try_norm_backward<true>("layer_norm_backward", at, blocks, stream)) return;
  const std::int64_t threads = (at.columns + kWarp - 1) / kWarp * kWarp;
  launch(stream, "layer_norm_backward", layer_norm_backward_any_kernel<T>,
         Grid{.x = static_cast<unsigned int>(blocks),
              .threads = static_cast<unsigned int>(std::min<std::int64_t>(threads, 1024))},
         at);
}

}  // namespace

void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const std::int64_t blocks = x.dtype() == DType::kF32
                                  ? norm_backward_blocks<float>(rows, columns)
                                  : norm_backward_blocks<BFloat16>(rows, columns);
  const Tensor workspace = empty_workspace(
      blocks * 2 * columns * static_cast<std::int64_t>(sizeof(float)), DType::kU8, stream);
  float* const lines = static_cast<float*>(workspace.raw());
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    launch_layer_norm_rows<T>(
        {dx.data<T>(), dy.data<T>(), x.data<T>(), mean.data<float>(), rstd.data<float>(),
         weight.data<float>(), 0, lines, rows, columns, input_mode == GradientMode::kAccumulate},
        blocks, stream);
  });
  Grid grid = grid_for(2 * columns, kWarp);
  grid.threads = kWarp * kWarp;
  launch(stream, "add_lines", add_lines_kernel, grid, dweight.data<float>(), dbias.data<float>(),
         lines, blocks, columns, parameter_mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cuda
