#include "kernels/cuda/grouped_launches.h"
#include "kernels/cuda/real.cuh"
#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kBiasWarps = 8;

template <class T>
struct BiasSums {
  const T* dy;
  const float* factors;  // of the rows, or null
  std::int64_t columns;
  bool accumulates;
  const std::int32_t* offsets = nullptr;
  float* dbiases[kMostMatrices] = {};
};

/// A warp reads packs side by side; the warps of a block take the rows of a group in turn. Grid: columns
/// / (32·N), groups.
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
  const float* vectors[kMostMatrices] = {};
};

/// The warps of a group's blocks take its rows in turn. Grid: blocks, groups.
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
  constexpr std::int64_t kMostBlocks = 16;  // of a group
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const std::int64_t blocks =
        std::clamp<std::int64_t>((x.size(0) + kBiasWarps - 1) / kBiasWarps, 1, kMostBlocks);
    GroupedDots<T> of{.sums = sums.data<float>(), .x = x.data<T>(), .columns = x.size(1)};
    for_launches(vectors.size(), rows, [&](std::size_t first, std::size_t count, auto* offsets) {
      of.offsets = offsets;
      for (std::size_t i = 0; i < count; ++i) of.vectors[i] = vectors[first + i].data<float>();
      launch(stream, "grouped_dots", grouped_dots_kernel<T>,
             Grid{.x = static_cast<unsigned int>(blocks),
                  .y = static_cast<unsigned int>(count),
                  .threads = kBiasWarps * kWarp},
             of);
    });
  });
}

void grouped_bias_backward(std::span<const Tensor> dbiases, const Tensor& dy, const Tensor& factors,
                           const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    constexpr int kPack = kPackSize<T>;
    const std::int64_t columns = dy.size(1);
    const bool packed = packs_fit<T>(columns, dy.raw());
    const std::int64_t tile = kWarp * (packed ? kPack : 1);
    BiasSums<T> of{.dy = dy.data<T>(),
                   .factors = factors ? factors.data<float>() : nullptr,
                   .columns = columns,
                   .accumulates = mode == GradientMode::kAccumulate};
    for_launches(dbiases.size(), rows, [&](std::size_t first, std::size_t count, auto* offsets) {
      of.offsets = offsets;
      for (std::size_t i = 0; i < count; ++i) of.dbiases[i] = dbiases[first + i].data<float>();
      launch(stream, "grouped_bias",
             packed ? grouped_bias_kernel<T, kPack> : grouped_bias_kernel<T, 1>,
             Grid{.x = static_cast<unsigned int>((columns + tile - 1) / tile),
                  .y = static_cast<unsigned int>(count),
                  .threads = kBiasWarps * kWarp},
             of);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cuda
