// Calls with one matrix per group, divided into launches.

#include <algorithm>

#include "hybrid_trainer/kernels/experts.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/experts/grouped_tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// Maximum matrices per launch. Their addresses are kernel arguments, which are limited to 4 KiB.
constexpr int kMaxMatrices = 128;

template <class Start>
void for_launches(std::size_t matrices, const GroupedRows& rows, const Start& start) {
  const std::int32_t* const offsets = rows.offsets.data<std::int32_t>() + rows.first;
  for (std::size_t first = 0; first < matrices; first += kMaxMatrices)
    start(first, static_cast<int>(std::min(matrices - first, std::size_t{kMaxMatrices})),
          offsets + first);
}

constexpr int kBiasWarps = 8;

template <class T>
struct BiasSums {
  const T* dy;
  const float* factors;  // factors of the rows, or null
  std::int64_t columns;
  bool accumulates;
  const std::int32_t* offsets = nullptr;
  float* dbiases[kMaxMatrices] = {};
};

/// Warps read adjacent packs, and take turns at a group's rows. Grid: columns / (32·N), groups.
template <class T, int N>
__global__ void grouped_bias_kernel(const BiasSums<T> of) {
  constexpr int kTile = kWarp * N;
  __shared__ float of_warp[kBiasWarps][kTile];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = first_column + lane * N;
  const std::int64_t begin = of.offsets[blockIdx.y], end = of.offsets[blockIdx.y + 1];
  float sum[N] = {};
  if (column < of.columns) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += kBiasWarps) {
      const float factor = of.factors != nullptr ? of.factors[row] : 1.0f;
      float values[N];
      load_pack(values, of.dy + row * of.columns + column);
      for (int i = 0; i < N; ++i) sum[i] += factor * values[i];
    }
  }
  for (int i = 0; i < N; ++i) of_warp[warp][lane * N + i] = sum[i];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kTile; at += kBiasWarps * kWarp) {
    if (first_column + at >= of.columns) break;
    float* const to = of.dbiases[blockIdx.y] + first_column + at;
    float total = of.accumulates ? *to : 0.0f;
    for (const auto& sums : of_warp) total += sums[at];
    *to = total;
  }
}

template <class T>
struct GroupedDots {
  float* sums;
  const T* x;
  std::int64_t columns;
  const std::int32_t* offsets = nullptr;
  const float* vectors[kMaxMatrices] = {};
};

/// The warps of a group's blocks take turns at its rows. Grid: blocks, groups.
template <class T>
__global__ void grouped_dots_kernel(const GroupedDots<T> of) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = blockIdx.x * kBiasWarps + threadIdx.x / kWarp;
  const std::int64_t begin = of.offsets[blockIdx.y], end = of.offsets[blockIdx.y + 1];
  const float* const vector = of.vectors[blockIdx.y];
  for (std::int64_t row = begin + first; row < end; row += gridDim.x * kBiasWarps) {
    const T* const x = of.x + row * of.columns;
    float sum = 0;
    for (std::int64_t c = lane; c < of.columns; c += kWarp) sum += load(x + c) * vector[c];
    sum = reduce_warp(sum, Sum{});
    if (lane == 0) of.sums[row] = sum;
  }
}

}  // namespace

void grouped_dots(const Tensor& sums, const Tensor& x, const GroupedRows& rows,
                  std::span<const Tensor> vectors, const Stream& stream) {
  constexpr std::int64_t kMaxBlocks = 16;  // maximum blocks per group
  visit_real(x.dtype(), [&]<class T>(T) {
    const std::int64_t blocks =
        std::clamp<std::int64_t>((x.size(0) + kBiasWarps - 1) / kBiasWarps, 1, kMaxBlocks);
    GroupedDots<T> of{.sums = sums.data<float>(), .x = x.data<T>(), .columns = x.size(1)};
    for_launches(vectors.size(), rows, [&](std::size_t first, int count, auto* offsets) {
      of.offsets = offsets;
      for (int i = 0; i < count; ++i) of.vectors[i] = vectors[first + i].data<float>();
      launch(stream, "grouped_dots", grouped_dots_kernel<T>,
             Grid{.x = blocks, .y = count, .threads = kBiasWarps * kWarp}, of);
    });
  });
}

void grouped_bias_backward(std::span<const Tensor> dbiases, const Tensor& dy, const Tensor& factors,
                           const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  visit_real(dy.dtype(), [&]<class T>(T) {
    constexpr int kPack = kPackSize<T>;
    const std::int64_t columns = dy.size(1);
    const bool packed = packs_fit<T>(columns, dy.raw());
    const std::int64_t tile = kWarp * (packed ? kPack : 1);
    BiasSums<T> of{.dy = dy.data<T>(),
                   .factors = optional_data<float>(factors),
                   .columns = columns,
                   .accumulates = mode == GradientMode::kAccumulate};
    for_launches(dbiases.size(), rows, [&](std::size_t first, int count, auto* offsets) {
      of.offsets = offsets;
      for (int i = 0; i < count; ++i) of.dbiases[i] = dbiases[first + i].data<float>();
      launch(stream, "grouped_bias",
             packed ? grouped_bias_kernel<T, kPack> : grouped_bias_kernel<T, 1>,
             Grid{.x = (columns + tile - 1) / tile, .y = count, .threads = kBiasWarps * kWarp}, of);
    });
  });
}

namespace {

struct RowTile {
  int matrix;
  std::int64_t first;
  int rows;  // 0 if there is no such tile
};

/// Returns tile `tile` of all groups, of kRows rows or fewer. All threads must call it.
template <int kRows>
__device__ RowTile find_row_tile(const std::int32_t* offsets, int matrices, int tile) {
  constexpr int kScans = kMaxMatrices / kWarp;  // one per warp
  __shared__ int of_warp[kScans];
  __shared__ RowTile found;
  const int i = static_cast<int>(threadIdx.x), warp = i / kWarp;
  const bool is_matrix = i < matrices;
  const int begin = is_matrix ? offsets[i] : 0, rows = is_matrix ? offsets[i + 1] - begin : 0;
  const int tiles = (rows + kRows - 1) / kRows;
  int total = 0;
  const int before = sum_before(tiles, total);
  if (i % kWarp == 0 && warp < kScans) of_warp[warp] = total;
  if (i == 0) found.rows = 0;
  __syncthreads();
  int within = tile - before;
  for (int other = 0; other < kScans; ++other) within -= other < warp ? of_warp[other] : 0;
  if (within >= 0 && within < tiles) {
    const int left = rows - within * kRows;
    found = {i, begin + static_cast<std::int64_t>(within) * kRows, left < kRows ? left : kRows};
  }
  __syncthreads();
  return found;
}

/// Products y = x·op(w), computed for the rows of each group with the group's matrix.
template <class T>
struct RowProducts {
  T* y;
  const T* x;
  int depth, columns, column_tiles;  // sizes of the product y
  bool accumulates;
  bool x_packed, w_packed, y_packed;
  int matrices = 0;
  const std::int32_t* offsets = nullptr;  // offsets from the first matrix's group on
  const T* w[kMaxMatrices] = {};
  const float* biases[kMaxMatrices] = {};  // or null
};

/// w is (columns, depth) if kTransposed, else (depth, columns). Consecutive blocks share x in L2.
template <class T, bool kTransposed>
__global__ void __launch_bounds__(GroupedTile<T, true, kTransposed>::kThreads,
                                  GroupedTile<T, true, kTransposed>::kBlocks)
    grouped_rows_kernel(const RowProducts<T> of) {
  using Product = GroupedTile<T, true, kTransposed>;
  static_assert(Product::kThreads >= kMaxMatrices);
  const auto block = static_cast<int>(blockIdx.x);
  const RowTile tile =
      find_row_tile<Product::kRows>(of.offsets, of.matrices, block / of.column_tiles);
  if (tile.rows == 0) return;
  const int column = block % of.column_tiles * Product::kColumns;
  const GroupedOperand<T, true> left{of.x + tile.first * of.depth, of.depth, tile.rows,
                                     of.x_packed};
  GroupedOperand<T, kTransposed> right{of.w[tile.matrix], kTransposed ? of.depth : of.columns,
                                       of.columns - column, of.w_packed};
  right.begin = right.at(column, 0);
  Product product;
  product.multiply(left, right, of.depth);
  const float* const bias = of.biases[tile.matrix];
  product.write(GroupedOutput<T>{of.y + tile.first * of.columns + column, of.columns, tile.rows,
                                 of.columns - column, bias != nullptr ? bias + column : nullptr,
                                 of.accumulates, of.y_packed});
}

/// Products dw = dyᵀ·x, computed over the rows of each group.
template <class T, class Out>
struct WeightProducts {
  const T *dy, *x;
  int outputs, inputs, input_tiles;
  bool accumulates;
  bool dy_packed, x_packed, dw_packed;
  const std::int32_t* offsets = nullptr;
  Out* dw[kMaxMatrices] = {};
};

/// Grid: tiles per matrix, matrices.
template <class T, class Out>
__global__ void __launch_bounds__(GroupedTile<T, false, false>::kThreads,
                                  GroupedTile<T, false, false>::kBlocks)
    grouped_weight_kernel(const WeightProducts<T, Out> of) {
  using Product = GroupedTile<T, false, false>;
  const auto block = static_cast<int>(blockIdx.x), matrix = static_cast<int>(blockIdx.y);
  const std::int64_t first = of.offsets[matrix];
  const auto rows = static_cast<int>(of.offsets[matrix + 1] - first);
  if (rows == 0 && of.accumulates) return;
  const int output = block / of.input_tiles * Product::kRows,
            input = block % of.input_tiles * Product::kColumns;
  const GroupedOperand<T, false> left{of.dy + first * of.outputs + output, of.outputs,
                                      of.outputs - output, of.dy_packed};
  const GroupedOperand<T, false> right{of.x + first * of.inputs + input, of.inputs,
                                       of.inputs - input, of.x_packed};
  Product product;
  product.multiply(left, right, rows);
  product.write(GroupedOutput<Out>{
      of.dw[matrix] + static_cast<std::int64_t>(output) * of.inputs + input, of.inputs, left.count,
      right.count, nullptr, of.accumulates, of.dw_packed});
}

template <class T>
bool all_packed(std::span<const Tensor> tensors, std::int64_t columns) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const Tensor& tensor) { return packs_fit<T>(columns, tensor.raw()); });
}

/// Returns an upper bound of row tiles: all tiles of a group but the last are full.
std::int64_t max_tiles(std::int64_t rows, std::int64_t groups, int tile_rows) {
  return std::min(rows, rows / tile_rows + std::min(rows, groups));
}

template <class T, bool kTransposed>
void multiply_rows(const Tensor& y, const Tensor& x, const GroupedRows& rows,
                   std::span<const Tensor> w, std::span<const Tensor> biases, GradientMode mode,
                   const Stream& stream) {
  using Product = GroupedTile<T, true, kTransposed>;
  const std::int64_t depth = x.size(1), columns = y.size(1);
  const std::int64_t column_tiles = (columns + Product::kColumns - 1) / Product::kColumns;
  RowProducts<T> of{.y = y.data<T>(),
                    .x = x.data<T>(),
                    .depth = static_cast<int>(depth),
                    .columns = static_cast<int>(columns),
                    .column_tiles = static_cast<int>(column_tiles),
                    .accumulates = mode == GradientMode::kAccumulate,
                    .x_packed = packs_fit<T>(depth, x.raw()),
                    .w_packed = all_packed<T>(w, kTransposed ? depth : columns),
                    .y_packed = packs_fit<T>(columns, y.raw())};
  for_launches(w.size(), rows, [&](std::size_t first, int count, auto* offsets) {
    of.offsets = offsets;
    of.matrices = count;
    for (int i = 0; i < count; ++i) {
      of.w[i] = w[first + i].data<T>();
      of.biases[i] = biases.empty() ? nullptr : biases[first + i].data<float>();
    }
    const std::int64_t tiles = max_tiles(x.size(0), count, Product::kRows);
    launch(stream, "grouped_rows", grouped_rows_kernel<T, kTransposed>,
           Grid{.x = tiles * column_tiles,
                .threads = Product::kThreads,
                .shared_bytes = Product::kBytes},
           of);
  });
}

template <class T, class Out>
void multiply_weights(std::span<const Tensor> dw, const Tensor& dy, const Tensor& x,
                      const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  using Product = GroupedTile<T, false, false>;
  const std::int64_t outputs = dy.size(1), inputs = x.size(1);
  const std::int64_t output_tiles = (outputs + Product::kRows - 1) / Product::kRows,
                     input_tiles = (inputs + Product::kColumns - 1) / Product::kColumns;
  WeightProducts<T, Out> of{.dy = dy.data<T>(),
                            .x = x.data<T>(),
                            .outputs = static_cast<int>(outputs),
                            .inputs = static_cast<int>(inputs),
                            .input_tiles = static_cast<int>(input_tiles),
                            .accumulates = mode == GradientMode::kAccumulate,
                            .dy_packed = packs_fit<T>(outputs, dy.raw()),
                            .x_packed = packs_fit<T>(inputs, x.raw()),
                            .dw_packed = all_packed<T>(dw, inputs)};
  for_launches(dw.size(), rows, [&](std::size_t first, int count, auto* offsets) {
    of.offsets = offsets;
    for (int i = 0; i < count; ++i) of.dw[i] = dw[first + i].data<Out>();
    launch(stream, "grouped_weight", grouped_weight_kernel<T, Out>,
           Grid{.x = output_tiles * input_tiles,
                .y = count,
                .threads = Product::kThreads,
                .shared_bytes = Product::kBytes},
           of);
  });
}

}  // namespace

void grouped_forward(const Tensor& y, const Tensor& x, const GroupedRows& rows,
                     std::span<const Tensor> w, std::span<const Tensor> biases, GradientMode mode,
                     const Stream& stream) {
  visit_real(x.dtype(),
             [&]<class T>(T) { multiply_rows<T, true>(y, x, rows, w, biases, mode, stream); });
}

void grouped_backward_input(const Tensor& dx, const Tensor& dy, const GroupedRows& rows,
                            std::span<const Tensor> w, GradientMode mode, const Stream& stream) {
  visit_real(dy.dtype(),
             [&]<class T>(T) { multiply_rows<T, false>(dx, dy, rows, w, {}, mode, stream); });
}

void grouped_backward_weight(std::span<const Tensor> dw, const Tensor& dy, const Tensor& x,
                             const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  if (x.dtype() == DType::kF32) {
    multiply_weights<float, float>(dw, dy, x, rows, mode, stream);
  } else if (dw.front().dtype() == DType::kF32) {
    multiply_weights<BFloat16, float>(dw, dy, x, rows, mode, stream);
  } else {
    multiply_weights<BFloat16, BFloat16>(dw, dy, x, rows, mode, stream);
  }
}

}  // namespace hybrid_trainer::kernels::cuda
