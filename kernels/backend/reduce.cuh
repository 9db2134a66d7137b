// Sums and maxima over a warp or a block, and sums over the rows or columns of a matrix, in an
// order that depends only on sizes.

#pragma once

#include "kernels/backend/elements.cuh"
#include "kernels/backend/launch.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kWarp = 32;
constexpr unsigned int kAllLanes = 0xFFFFFFFFu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/// Combines the values of `team` adjacent lanes; `team` is a power of two. Returns the result in
/// each of these lanes. All lanes of the warp must call it.
template <class T, class Combine>
__device__ T reduce_warp(T value, Combine combine, int team = kWarp) {
  for (int distance = team / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// Returns the sum of the values of the lanes before this lane. Sets `total` to the sum over all
/// lanes.
__device__ inline int sum_before(int value, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += before;
  }
  total = __shfl_sync(kAllLanes, sum, kWarp - 1);
  return sum - value;
}

/// Combines the values of all threads and returns the result in each thread. The block's size must
/// be a multiple of 32, and every thread must call it. `none` is the identity element of `combine`.
template <class T, class Combine>
__device__ T reduce_block(T value, Combine combine, T none) {
  __shared__ T of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = reduce_warp(value, combine);
  __syncthreads();  // all threads have read the values of the previous call
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  return reduce_warp(lane < warps ? of_warp[lane] : none, combine);
}

constexpr unsigned int kRowThreads = 256;

/// Runs one block of threads for each row of `columns` elements.
template <class Row>
__global__ void for_rows_kernel(Row row, std::int64_t columns) {
  const std::int64_t begin = blockIdx.x * columns;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += kRowThreads)
    sum += static_cast<double>(row.term(begin + i, i));
  sum = reduce_block(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) row.finish(blockIdx.x, sum);
}

/// Enqueues row.finish(row, sum) for each row. sum is the total of row.term(element, column) over
/// the row.
template <class Row>
void for_rows(const Stream& stream, const char* name, const Row& row, std::int64_t rows,
              std::int64_t columns) {
  launch(stream, name, for_rows_kernel<Row>, Grid{.x = rows, .threads = kRowThreads}, row, columns);
}

constexpr int kColumnSumWarps = 8;

struct Unchanged {
  __device__ float operator()(float x) const { return x; }
};

/// sums[chunk, column] = or += the sum of term(in[row, column]) over the rows of the chunk. A warp
/// reads adjacent packs; the warps of a block take turns at rows. Grid: columns / (32·N), chunks.
template <class T, int N, class Term>
__global__ void column_sums_kernel(float* sums, const T* in, std::int64_t rows,
                                   std::int64_t columns, std::int64_t chunk_rows, bool accumulate,
                                   Term term) {
  constexpr int kTile = kWarp * N;
  __shared__ float of_warp[kColumnSumWarps][kTile];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = first_column + lane * N;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * chunk_rows;
  const std::int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sum[N] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += kColumnSumWarps) {
      float values[N];
      load_pack(values, in + row * columns + column);
      for (int i = 0; i < N; ++i) sum[i] += term(values[i]);
    }
  }
  for (int i = 0; i < N; ++i) of_warp[warp][lane * N + i] = sum[i];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kTile; at += kColumnSumWarps * kWarp) {
    if (first_column + at >= columns) break;
    float* const to = sums + blockIdx.y * columns + first_column + at;
    float total = accumulate ? *to : 0.0f;
    for (int i = 0; i < kColumnSumWarps; ++i) total += of_warp[i][at];
    *to = total;
  }
}

/// Launches column_sums_kernel. `sums` has one row per chunk of `chunk_rows` rows.
template <class T, class Term>
void launch_column_sums(float* sums, const T* in, std::int64_t rows, std::int64_t columns,
                        std::int64_t chunk_rows, bool accumulate, const Stream& stream,
                        const Term& term) {
  constexpr int kPack = kPackSize<T>;
  const bool packed = packs_fit<T>(columns, in);
  const std::int64_t tile = kWarp * (packed ? kPack : 1);
  const Grid grid{.x = (columns + tile - 1) / tile,
                  .y = rows == 0 ? 1 : (rows + chunk_rows - 1) / chunk_rows,
                  .threads = kColumnSumWarps * kWarp};
  launch(stream, "column_sums",
         packed ? column_sums_kernel<T, kPack, Term> : column_sums_kernel<T, 1, Term>, grid, sums,
         in, rows, columns, chunk_rows, accumulate, term);
}

/// sums[column] = or += the sum of term(in[row, column]) over all rows. The number of rows may be
/// 0. Uses one launch if there are enough columns to fill a device; otherwise sums chunks of rows
/// first, in a separate launch.
template <class T, class Term = Unchanged>
void column_sums(float* sums, const T* in, std::int64_t rows, std::int64_t columns, bool accumulate,
                 const Stream& stream, const Term& term = {}) {
  constexpr std::int64_t kFullDevice = 512;  // number of blocks that fill a device
  constexpr std::int64_t kMinRows = 64;      // minimum rows per chunk
  if (columns == 0) return;
  const std::int64_t tile = kWarp * kPackSize<T>;
  const std::int64_t wanted = kFullDevice / ((columns + tile - 1) / tile);
  const std::int64_t most = (rows + kMinRows - 1) / kMinRows;
  const std::int64_t chunks = wanted < most ? wanted : most;
  if (chunks < 2)
    return launch_column_sums(sums, in, rows, columns, rows, accumulate, stream, term);
  const std::int64_t chunk_rows = (rows + chunks - 1) / chunks;
  const std::int64_t lines = (rows + chunk_rows - 1) / chunk_rows;
  const Tensor space = empty_workspace(lines * columns, DType::kF32, stream);
  auto* const partial = space.data<float>();
  launch_column_sums(partial, in, rows, columns, chunk_rows, false, stream, term);
  launch_column_sums(sums, static_cast<const float*>(partial), lines, columns, lines, accumulate,
                     stream, Unchanged{});
}

}  // namespace hybrid_trainer::kernels::cuda
