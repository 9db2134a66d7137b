#include <algorithm>

#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/cuda/real.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kRowsAtOnce = 4;             // of a block: their loads are in flight together
constexpr std::int64_t kMostBlocks = 512;  // each leaves a line of sums

/// Most threads of a block that processes R rows at once, as its registers allow.
template <class T, int R>
constexpr int kMostThreads = R == 1           ? 1024
                             : sizeof(T) == 2 ? 384
                                              : 512;

template <class T>
struct Backward {
  T* dx;
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  const float* weight;
  float* lines;  // per block its share of dweight, then of dbias
  std::int64_t rows;
  std::int64_t columns;
  bool accumulate;

  __device__ float* line() const { return lines + blockIdx.x * 2 * columns; }
};

/// What a row's dx needs of the whole row: sums of dy·weight, alone and times normalized.
struct RowSums {
  float gradient;
  float projection;
};

/// Sums over the block for several rows, in each thread. `turn` alternates from call to call, so
/// that one barrier is enough.
template <int R>
__device__ void add_over_block(RowSums (&sums)[R], int turn) {
  __shared__ RowSums of_warp[2][kWarp][R];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int r = 0; r < R; ++r) {
    sums[r].gradient = reduce_warp(sums[r].gradient, Sum{});
    sums[r].projection = reduce_warp(sums[r].projection, Sum{});
    if (threadIdx.x % kWarp == 0) of_warp[turn][warp][r] = sums[r];
    sums[r] = {0, 0};
  }
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    for (int r = 0; r < R; ++r) {
      sums[r].gradient += of_warp[turn][w][r].gradient;
      sums[r].projection += of_warp[turn][w][r].projection;
    }
  }
}

/// A thread's columns of one row, in their dtype in memory.
template <class T>
struct RowPart {
  static constexpr int N = kPackSize<T>;
  Pack<T, N> dx, dy, x;
  float mean, rstd;

  __device__ void read(const Backward<T>& at, std::int64_t row, std::int64_t column) {
    const std::int64_t i = row * at.columns + column;
    if (at.accumulate) dx = *reinterpret_cast<const Pack<T, N>*>(at.dx + i);
    dy = *reinterpret_cast<const Pack<T, N>*>(at.dy + i);
    x = *reinterpret_cast<const Pack<T, N>*>(at.x + i);
    mean = at.mean[row];
    rstd = at.rstd[row];
  }
  __device__ float gradient(int j) const { return load(&dy.values[j]); }
  __device__ float normalized(int j) const { return (load(&x.values[j]) - mean) * rstd; }
  __device__ void write(const Backward<T>& at, std::int64_t row, std::int64_t column,
                        const float (&weight)[N], const RowSums& sums) const {
    const float part = 1.0f / static_cast<float>(at.columns);
    float out[N];
    for (int j = 0; j < N; ++j) {
      const float mean_part = (sums.gradient + normalized(j) * sums.projection) * part;
      out[j] = load(&dx.values[j]) + (gradient(j) * weight[j] - mean_part) * rstd;
    }
    store_pack(at.dx + row * at.columns + column, out);
  }
};

/// Each thread has one pack of columns and goes through the block's rows, R at once.
template <class T, int R>
__global__ void __launch_bounds__(kMostThreads<T, R>) layer_norm_backward_kernel(Backward<T> at) {
  constexpr int N = kPackSize<T>;
  const std::int64_t column = threadIdx.x * N;
  const bool has_columns = column < at.columns;
  float weight[N] = {}, dweight[N] = {}, dbias[N] = {};
  if (has_columns) load_pack(weight, at.weight + column);
  int turn = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * R;
  for (std::int64_t first = blockIdx.x * R; first < at.rows; first += step) {
    RowPart<T> part[R] = {};
    RowSums sums[R] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (has_columns && first + r < at.rows) part[r].read(at, first + r, column);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      for (int j = 0; j < N; ++j) {
        const float gradient = part[r].gradient(j), normalized = part[r].normalized(j);
        dweight[j] += gradient * normalized;
        dbias[j] += gradient;
        sums[r].gradient += gradient * weight[j];
        sums[r].projection += gradient * weight[j] * normalized;
      }
    }
    add_over_block(sums, turn);
    turn = 1 - turn;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (has_columns && first + r < at.rows) {
        part[r].write(at, first + r, column, weight, sums[r]);
      }
    }
  }
  if (!has_columns) return;
  store_pack(at.line() + column, dweight);
  store_pack(at.line() + at.columns + column, dbias);
}

/// The same for any number of columns and any alignment, summing in the block's line throughout.
template <class T>
__global__ void layer_norm_backward_any_kernel(Backward<T> at) {
  float* const dweight = at.line();
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

/// Computes the lines' sums and dx.
template <class T>
void launch_rows(const Backward<T>& at, std::int64_t blocks, const Stream& stream) {
  const bool packed = packs_fit<T>(at.columns, at.dx, at.dy, at.x, at.weight);
  std::int64_t threads = packed ? at.columns / kPackSize<T> : at.columns;
  auto* kernel = layer_norm_backward_any_kernel<T>;
  if (packed && threads <= kMostThreads<T, kRowsAtOnce>) {
    kernel = layer_norm_backward_kernel<T, kRowsAtOnce>;
  } else if (packed && threads <= kMostThreads<T, 1>) {
    kernel = layer_norm_backward_kernel<T, 1>;
  }
  threads = std::min<std::int64_t>((threads + kWarp - 1) / kWarp * kWarp, 1024);
  launch(
      stream, "layer_norm_backward", kernel,
      Grid{.x = static_cast<unsigned int>(blocks), .threads = static_cast<unsigned int>(threads)},
      at);
}

}  // namespace

void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const std::int64_t blocks = std::min((rows + kRowsAtOnce - 1) / kRowsAtOnce, kMostBlocks);
  const Tensor workspace = empty_workspace(
      blocks * 2 * columns * static_cast<std::int64_t>(sizeof(float)), DType::kU8, stream);
  float* const lines = static_cast<float*>(workspace.raw());
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    launch_rows<T>(
        {dx.data<T>(), dy.data<T>(), x.data<T>(), mean.data<float>(), rstd.data<float>(),
         weight.data<float>(), lines, rows, columns, input_mode == GradientMode::kAccumulate},
        blocks, stream);
  });
  Grid grid = grid_for(2 * columns, kWarp);
  grid.threads = kWarp * kWarp;
  launch(stream, "add_lines", add_lines_kernel, grid, dweight.data<float>(), dbias.data<float>(),
         lines, blocks, columns, parameter_mode == GradientMode::kAccumulate);
}

}  // namespace hybrid_trainer::kernels::cuda
