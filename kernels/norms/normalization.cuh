// Teams of threads that share a row of a matrix, and the backward pass that LayerNorm and RMSNorm
// share: a block iterates over rows and keeps its sums for the parameters in registers.

#pragma once

#include <algorithm>

#include "kernels/backend/reduce.cuh"
#include "kernels/backend/tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kTeamThreads = 256;  // threads per block, and threads of the largest team

/// Returns the number of threads that share a row of `packs` packs: the smallest sufficient number
/// of lanes of a warp, or a whole block.
inline int row_team(std::int64_t packs) {
  int lanes = 1;
  while (lanes < kWarp && lanes < packs) lanes *= 2;
  if (packs <= lanes) return lanes;
  return static_cast<int>(
      std::min<std::int64_t>((packs + kWarp - 1) / kWarp * kWarp, kTeamThreads));
}

/// Returns the sum over a team, in each of its threads. All threads of the block must call it.
__device__ inline float sum_over_team(float value, int team) {
  return team > kWarp ? reduce_block(value, Sum{}, 0.0f) : reduce_warp(value, Sum{}, team);
}

template <class T>
struct NormBackward {
  T* dx;
  const T* dy;
  const T* x;
  const float* mean;  // LayerNorm only
  const float* rstd;
  const float* weight;
  float weight_offset;  // added to each weight; RMSNorm only
  /// Contribution of each block to dweight, followed by its contribution to dbias (LayerNorm only).
  float* lines;
  std::int64_t rows;
  std::int64_t columns;
  bool accumulate;
};

/// Returns the number of blocks for rows of `columns` columns; each writes a line of sums. All fit
/// on a device of 108 multiprocessors at the same time, and their copies saturate its memory bus.
template <class T>
std::int64_t norm_backward_blocks(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kThreads = 65536;  // threads of all blocks together
  const std::int64_t of_block = std::max<std::int64_t>(columns / kPackSize<T>, 1);
  return std::min((rows + 1) / 2, std::clamp<std::int64_t>(kThreads / of_block, 128, 512));
}

/// Sums over a row that dx needs: Σ dy·weight, and Σ dy·weight·normalized.
struct NormRowSums {
  float gradient;
  float projection;
};

/// Replaces the sums of R rows by their sums over the block, in each thread. `turn` must alternate
/// between 0 and 1, so that one barrier is enough.
template <bool kCentered, int R>
__device__ void add_over_block(NormRowSums (&sums)[R], int turn) {
  __shared__ NormRowSums of_warp[2][kWarp][R];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int r = 0; r < R; ++r) {
    if constexpr (kCentered) sums[r].gradient = reduce_warp(sums[r].gradient, Sum{});
    sums[r].projection = reduce_warp(sums[r].projection, Sum{});
    if (threadIdx.x % kWarp == 0) of_warp[turn][warp][r] = sums[r];
    sums[r] = {0, 0};
  }
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    for (int r = 0; r < R; ++r) {
      if constexpr (kCentered) sums[r].gradient += of_warp[turn][w][r].gradient;
      sums[r].projection += of_warp[turn][w][r].projection;
    }
  }
}

/// A thread's pack of columns in R rows, double-buffered in shared memory: the next rows are copied
/// while the current ones are computed. Only this thread reads the copies.
template <class T, int R, bool kCentered>
struct NormRows {
  static constexpr int N = kPackSize<T>;
  enum Part { kDy, kX, kDx, kParts };
  struct Moments {
    float mean, rstd;
  };

  const NormBackward<T>& at;
  std::int64_t column = threadIdx.x * N;
  bool has_columns = column < at.columns;
  Moments moments[2][R] = {};

  __device__ explicit NormRows(const NormBackward<T>& tensors) : at(tensors) {}
  __device__ T* part(int stage, int r, Part which) const {
    const int line = (stage * R + r) * kParts + which;
    return dynamic_shared<T>() + (line * static_cast<int>(blockDim.x) + threadIdx.x) * N;
  }
  __device__ bool has(std::int64_t row) const { return has_columns && row < at.rows; }

  __device__ void copy(int stage, std::int64_t first) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (!has(first + r)) continue;
      const std::int64_t i = (first + r) * at.columns + column;
      copy_async(shared_address(part(stage, r, kDy)), at.dy + i, true);
      copy_async(shared_address(part(stage, r, kX)), at.x + i, true);
      if (at.accumulate) copy_async(shared_address(part(stage, r, kDx)), at.dx + i, true);
      if constexpr (kCentered) moments[stage][r].mean = at.mean[first + r];
      moments[stage][r].rstd = at.rstd[first + r];
    }
    commit_copies();
  }
  __device__ void read(float (&gradient)[N], float (&normalized)[N], int stage, int r) const {
    const Moments of = moments[stage][r];
    load_pack(gradient, part(stage, r, kDy));
    load_pack(normalized, part(stage, r, kX));
    for (int j = 0; j < N; ++j)
      normalized[j] = kCentered ? (normalized[j] - of.mean) * of.rstd : normalized[j] * of.rstd;
  }
  __device__ void write(const float (&weight)[N], const NormRowSums& sums, int stage, int r,
                        std::int64_t row) const {
    const float share = 1.0f / static_cast<float>(at.columns);
    float gradient[N], normalized[N], out[N] = {};
    read(gradient, normalized, stage, r);
    if (at.accumulate) load_pack(out, part(stage, r, kDx));
    for (int j = 0; j < N; ++j) {
      float mean_part = normalized[j] * sums.projection;
      if constexpr (kCentered) mean_part += sums.gradient;
      out[j] += (gradient[j] * weight[j] - mean_part * share) * moments[stage][r].rstd;
    }
    store_pack(at.dx + row * at.columns + column, out);
  }
};

/// Maximum threads per block for a block that processes R rows at a time.
template <int R>
constexpr int kMaxNormThreads = R == 1 ? 1024 : 512;

/// Each thread has one pack of columns and iterates over the block's rows, R at a time.
template <class T, int R, bool kCentered>
__global__ void __launch_bounds__(kMaxNormThreads<R>) norm_backward_kernel(NormBackward<T> at) {
  constexpr int N = kPackSize<T>;
  NormRows<T, R, kCentered> rows(at);
  float weight[N] = {}, dweight[N] = {}, dbias[N] = {};
  if (rows.has_columns) load_pack(weight, at.weight + rows.column);
  if constexpr (!kCentered)
    for (int j = 0; j < N; ++j) weight[j] += at.weight_offset;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * R;
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * R;
  const auto compute = [&](int stage) {
    rows.copy(1 - stage, first + step);
    wait_for_copies<1>();
    NormRowSums sums[R] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (!rows.has(first + r)) continue;
      float gradient[N], normalized[N];
      rows.read(gradient, normalized, stage, r);
      for (int j = 0; j < N; ++j) {
        dweight[j] += gradient[j] * normalized[j];
        if constexpr (kCentered) dbias[j] += gradient[j];
        if constexpr (kCentered) sums[r].gradient += gradient[j] * weight[j];
        sums[r].projection += gradient[j] * weight[j] * normalized[j];
      }
    }
    add_over_block<kCentered>(sums, stage);
#pragma unroll
    for (int r = 0; r < R; ++r)
      if (rows.has(first + r)) rows.write(weight, sums[r], stage, r, first + r);
    first += step;
  };
  rows.copy(0, first);
  while (first < at.rows) {
    compute(0);
    if (first < at.rows) compute(1);
  }
  if (!rows.has_columns) return;
  float* const line = at.lines + blockIdx.x * (kCentered ? 2 : 1) * at.columns;
  store_pack(line + rows.column, dweight);
  if constexpr (kCentered) store_pack(line + at.columns + rows.column, dbias);
}

/// Computes dx and one line of sums per block. Returns false, without any effect, if rows cannot be
/// read in packs or are wider than a block.
template <bool kCentered, class T>
[[nodiscard]] bool try_norm_backward(const char* name, const NormBackward<T>& at,
                                     std::int64_t blocks, const Stream& stream) {
  const std::int64_t packs = at.columns / kPackSize<T>;
  if (!packs_fit<T>(at.columns, at.dx, at.dy, at.x, at.weight) || packs > kMaxNormThreads<1>)
    return false;
  const bool narrow = packs <= kMaxNormThreads<2>;
  const auto threads = static_cast<unsigned int>((packs + kWarp - 1) / kWarp * kWarp);
  const std::size_t of_thread = 2 * NormRows<T, 1, kCentered>::kParts * 16;  // bytes per row
  launch(
      stream, name,
      narrow ? norm_backward_kernel<T, 2, kCentered> : norm_backward_kernel<T, 1, kCentered>,
      Grid{.x = blocks, .threads = threads, .shared_bytes = threads * of_thread * (narrow ? 2 : 1)},
      at);
  return true;
}

}  // namespace hybrid_trainer::kernels::cuda
