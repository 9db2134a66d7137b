#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/norms/normalization.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kWarpsPerBlock = 4;

/// A row, distributed over a warp. Each lane keeps K packs of N elements in registers.
template <class T, int N, int K>
class Row {
 public:
  __device__ Row(const T* from, std::int64_t columns) : columns_(columns) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (column(k) < columns_) load_pack(values_[k], from + column(k));
  }
  template <class Function>
  __device__ void for_each(const Function& function) const {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (column(k) < columns_) function(column(k), values_[k]);
  }

 private:
  __device__ static std::int64_t column(int k) {
    return (k * kWarp + static_cast<int>(threadIdx.x) % kWarp) * N;
  }
  std::int64_t columns_;
  float values_[K][N];
};

/// A row that is too long for registers. Reads the elements each time, from the L1 cache.
template <class T, int N>
class Row<T, N, 0> {
 public:
  __device__ Row(const T* from, std::int64_t columns) : from_(from), columns_(columns) {}
  template <class Function>
  __device__ void for_each(const Function& function) const {
    for (std::int64_t i = threadIdx.x % kWarp * N; i < columns_; i += kWarp * N) {
      float values[N];
      load_pack(values, from_ + i);
      function(i, values);
    }
  }

 private:
  const T* from_;
  std::int64_t columns_;
};

template <class T, int N, int K>
__global__ void layer_norm_forward_kernel(T* y, float* mean_out, float* rstd_out, const T* x,
                                          const float* weight, const float* bias, std::int64_t rows,
                                          std::int64_t columns, float epsilon) {
  const std::int64_t n =
      static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
  if (n >= rows) return;
  const Row<T, N, K> row(x + n * columns, columns);
  float sum = 0;
  row.for_each([&](std::int64_t, const float(&values)[N]) {
    for (int j = 0; j < N; ++j) sum += values[j];
  });
  const float mean = reduce_warp(sum, Sum{}) / static_cast<float>(columns);
  float squares = 0;
  row.for_each([&](std::int64_t, const float(&values)[N]) {
    for (int j = 0; j < N; ++j) squares += (values[j] - mean) * (values[j] - mean);
  });
  const float variance = reduce_warp(squares, Sum{}) / static_cast<float>(columns);
  const float rstd = 1.0f / sqrtf(variance + epsilon);
  row.for_each([&](std::int64_t column, const float(&values)[N]) {
    float scale[N], out[N];
    load_pack(scale, weight + column);
    load_pack(out, bias + column);
    for (int j = 0; j < N; ++j) out[j] += (values[j] - mean) * rstd * scale[j];
    store_pack(y + n * columns + column, out);
  });
  if (threadIdx.x % kWarp != 0) return;
  if (mean_out != nullptr) mean_out[n] = mean;
  if (rstd_out != nullptr) rstd_out[n] = rstd;
}

/// Returns the kernel whose lanes keep the smallest number of packs that covers a row.
template <class T>
auto kernel_for(std::int64_t columns) {
  constexpr int N = kPackSize<T>;
  const std::int64_t of_lane = (columns + kWarp - 1) / kWarp;  // elements
  if (of_lane <= 8) return layer_norm_forward_kernel<T, N, 8 / N>;
  if (of_lane <= 16) return layer_norm_forward_kernel<T, N, 16 / N>;
  if (of_lane <= 24) return layer_norm_forward_kernel<T, N, 24 / N>;
  if (of_lane <= 32) return layer_norm_forward_kernel<T, N, 32 / N>;
  if (of_lane <= 64) return layer_norm_forward_kernel<T, N, 64 / N>;
  return layer_norm_forward_kernel<T, N, 0>;
}

}  // namespace

void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon,
                        const Stream& stream) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  visit_real(x.dtype(), [&]<class T>(T) {
    const bool packed = packs_fit<T>(columns, y.raw(), x.raw(), weight.raw(), bias.raw());
    launch(stream, "layer_norm_forward",
           packed ? kernel_for<T>(columns) : layer_norm_forward_kernel<T, 1, 0>,
           grid_for(rows * kWarp, kWarpsPerBlock * kWarp), y.data<T>(), optional_data<float>(mean),
           optional_data<float>(rstd), x.data<T>(), weight.data<float>(), bias.data<float>(), rows,
           columns, epsilon);
  });
}

namespace {

/// Supports any number of columns and any alignment; sums in the block's line.
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

/// dweight and dbias = or += the sums over all lines. Blocks have 32 columns of 32 threads each.
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

/// Computes dx, and the blocks' lines of sums for dweight and dbias.
template <class T>
void launch_layer_norm_rows(const NormBackward<T>& at, std::int64_t blocks, const Stream& stream) {
  if (try_norm_backward<true>("layer_norm_backward", at, blocks, stream)) return;
  const std::int64_t threads = (at.columns + kWarp - 1) / kWarp * kWarp;
  launch(stream, "layer_norm_backward", layer_norm_backward_any_kernel<T>,
         Grid{.x = blocks, .threads = std::min<std::int64_t>(threads, 1024)}, at);
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
  const Tensor workspace = empty_workspace(blocks * 2 * columns, DType::kF32, stream);
  float* const lines = workspace.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
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
