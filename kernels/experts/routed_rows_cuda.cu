// Gathers tokens into rows ordered by expert, and combines the experts' results.

#include "hybrid_trainer/kernels/experts.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kRowsOfBlock = 8;  // one warp each

__device__ std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
}
__device__ int first_of_lane() { return static_cast<int>(threadIdx.x) % kWarp; }

Grid grid_of_rows(std::int64_t rows) {
  return {.x = (rows + kRowsOfBlock - 1) / kRowsOfBlock, .threads = kRowsOfBlock * kWarp};
}

/// rows[r] = x[pairs[r] / chosen]. A row is copied as `units` elements of type Unit.
template <class Unit>
__global__ void gather_tokens_kernel(Unit* rows, const Unit* x, const std::int32_t* pairs,
                                     std::int64_t count, int chosen, std::int64_t units) {
  const std::int64_t row = row_of_warp();
  if (row >= count) return;
  const Unit* const from = x + pairs[row] / chosen * units;
#pragma unroll 4
  for (std::int64_t i = first_of_lane(); i < units; i += kWarp) rows[row * units + i] = from[i];
}

template <class Unit>
void gather_units(const Tensor& rows, const Tensor& x, const Routing& routing,
                  const Stream& stream) {
  const auto bytes = static_cast<std::int64_t>(x.bytes()) / x.size(0);
  launch(stream, "gather_tokens", gather_tokens_kernel<Unit>, grid_of_rows(rows.size(0)),
         static_cast<Unit*>(rows.raw()), static_cast<const Unit*>(x.raw()),
         routing.pairs.data<std::int32_t>(), rows.size(0),
         static_cast<int>(routing.experts.size(1)),
         bytes / static_cast<std::int64_t>(sizeof(Unit)));
}

template <class T>
struct CombinedRows {
  T* y;
  const T *rows, *residual;  // or null; weights may also be null
  const float* weights;
  const std::int32_t* places;
  std::int64_t tokens, columns;
  int chosen;
};

/// One warp per token and 32 packs of columns, one per lane. Grid: tokens, columns / (32·N).
template <class T, int N>
__global__ void combine_rows_kernel(const CombinedRows<T> of) {
  const std::int64_t token = row_of_warp();
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWarp + first_of_lane()) * N;
  if (token >= of.tokens || column >= of.columns) return;
  const std::int64_t at = token * of.columns + column;
  float sum[N] = {};
  if (of.residual != nullptr) load_pack(sum, of.residual + at);
#pragma unroll 4
  for (std::int64_t pair = token * of.chosen; pair < (token + 1) * of.chosen; ++pair) {
    const float weight = of.weights != nullptr ? of.weights[pair] : 1.0f;
    float row[N];
    load_pack(row, of.rows + of.places[pair] * of.columns + column);
    for (int n = 0; n < N; ++n) sum[n] += weight * row[n];
  }
  store_pack(of.y + at, sum);
}

template <class T>
struct WeighedRows {
  T *rows, *drows;
  float* dweights;
  const float *weights, *more;  // `more`: one per row, or null
  const std::int32_t* pairs;
  std::int64_t count, columns;
};

template <class T, int N>
__global__ void weigh_rows_kernel(const WeighedRows<T> of) {
  const std::int64_t row = row_of_warp();
  if (row >= of.count) return;
  const std::int32_t pair = of.pairs[row];
  const float weight = of.weights[pair];
  float sum = 0;
#pragma unroll 2
  for (std::int64_t i = first_of_lane() * N; i < of.columns; i += kWarp * N) {
    const std::int64_t at = row * of.columns + i;
    float values[N], gradients[N];
    load_pack(values, of.rows + at);
    load_pack(gradients, of.drows + at);
    for (int n = 0; n < N; ++n) {
      sum += values[n] * gradients[n];
      values[n] *= weight;
      gradients[n] *= weight;
    }
    store_pack(of.rows + at, values);
    store_pack(of.drows + at, gradients);
  }
  sum = reduce_warp(sum, Sum{});
  if (first_of_lane() == 0) of.dweights[pair] = of.more != nullptr ? sum + of.more[row] : sum;
}

}  // namespace

void gather_tokens(const Tensor& rows, const Tensor& x, const Routing& routing,
                   const Stream& stream) {
  if (rows.elements() == 0) return;
  const std::size_t size = size_of(x.dtype());
  const auto packed = static_cast<std::int64_t>(16 / size);
  if (x.size(1) % packed == 0 && packs_aligned(rows.raw(), x.raw()))
    return gather_units<uint4>(rows, x, routing, stream);
  if (size == sizeof(float)) return gather_units<float>(rows, x, routing, stream);
  gather_units<std::uint16_t>(rows, x, routing, stream);
}

void combine_rows(const Tensor& y, const Tensor& rows, const Tensor& weights,
                  const Tensor& residual, const Routing& routing, const Stream& stream) {
  visit_real(y.dtype(), [&]<class T>(T) {
    const CombinedRows<T> of{.y = y.data<T>(),
                             .rows = rows.data<T>(),
                             .residual = optional_data<T>(residual),
                             .weights = optional_data<float>(weights),
                             .places = routing.places.data<std::int32_t>(),
                             .tokens = y.size(0),
                             .columns = y.size(1),
                             .chosen = static_cast<int>(routing.experts.size(1))};
    constexpr int kPack = kPackSize<T>;
    const bool packed = packs_fit<T>(of.columns, of.y, of.rows, of.residual);
    const std::int64_t tile = kWarp * (packed ? kPack : 1);
    Grid grid = grid_of_rows(of.tokens);
    grid.y = (of.columns + tile - 1) / tile;
    launch(stream, "combine_rows",
           packed ? combine_rows_kernel<T, kPack> : combine_rows_kernel<T, 1>, grid, of);
  });
}

void weigh_rows(const Tensor& dweights, const Tensor& more, const Tensor& rows, const Tensor& drows,
                const Routing& routing, const Stream& stream) {
  visit_real(rows.dtype(), [&]<class T>(T) {
    const WeighedRows<T> of{.rows = rows.data<T>(),
                            .drows = drows.data<T>(),
                            .dweights = dweights.data<float>(),
                            .weights = routing.weights.data<float>(),
                            .more = optional_data<float>(more),
                            .pairs = routing.pairs.data<std::int32_t>(),
                            .count = rows.size(0),
                            .columns = rows.size(1)};
    constexpr int kPack = kPackSize<T>;
    const bool packed = packs_fit<T>(of.columns, of.rows, of.drows);
    launch(stream, "weigh_rows", packed ? weigh_rows_kernel<T, kPack> : weigh_rows_kernel<T, 1>,
           grid_of_rows(of.count), of);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
