// Processes one quantization block per warp. Each lane has 8 of the 256 elements, in packs of N;
// adjacent lanes read adjacent packs.

#pragma once

#include <algorithm>

#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/quantized/quantization_table.h"

namespace hybrid_trainer::kernels::cuda {

constexpr int kPerLane = kQuantizationBlock / kWarp;
constexpr int kQuantizingThreads = 256;
constexpr int kQuantizingWarps = kQuantizingThreads / kWarp;
/// Maximum number of thread blocks, enough to fill any device. More blocks would spend much of
/// their time on reading the tables.
constexpr std::int64_t kMaxQuantizingBlocks = 4096;

namespace {
__device__ const QuantizationTable kSignedTable = make_quantization_table(QuantizationMap::kSigned);
__device__ const QuantizationTable kUnsignedTable =
    make_quantization_table(QuantizationMap::kUnsigned);
}  // namespace

/// A map's table in the block's shared memory.
template <QuantizationMap kMap>
struct SharedTable {
  const float* values;
  const float* bounds;
};

/// Copies a map's table to shared memory. All threads of the block must call it.
template <QuantizationMap kMap>
__device__ SharedTable<kMap> load_table() {
  __shared__ float values[kCodes];
  __shared__ float bounds[kCodes + 1];
  const QuantizationTable& from = kMap == QuantizationMap::kSigned ? kSignedTable : kUnsignedTable;
  for (int i = static_cast<int>(threadIdx.x); i <= kCodes; i += kQuantizingThreads) {
    if (i < kCodes) values[i] = from.values[i];
    bounds[i] = from.bounds[i];
  }
  __syncthreads();
  return {values, bounds};
}

struct SharedTables {
  SharedTable<QuantizationMap::kSigned> of_signed;
  SharedTable<QuantizationMap::kUnsigned> of_unsigned;
};

/// Returns the start of the lane's pack `pack` in the quantization block.
template <int N>
__device__ int pack_begin(int pack) {
  return (pack * kWarp + static_cast<int>(threadIdx.x) % kWarp) * N;
}

/// Loads the lane's elements of a block of `count` elements; `count` is 256 if N > 1. Elements
/// beyond the block become 0.
template <int N, class T>
__device__ void load_lane(float (&to)[kPerLane], const T* from, int count) {
  for (int pack = 0; pack < kPerLane / N; ++pack) {
    const int at = pack_begin<N>(pack);
    float part[N] = {};
    if (N > 1 || at < count) load_pack(part, from + at);
    for (int k = 0; k < N; ++k) to[pack * N + k] = part[k];
  }
}

template <int N, class T>
__device__ void store_lane(T* to, const float (&from)[kPerLane], int count) {
  for (int pack = 0; pack < kPerLane / N; ++pack) {
    const int at = pack_begin<N>(pack);
    float part[N];
    for (int k = 0; k < N; ++k) part[k] = from[pack * N + k];
    if (N > 1 || at < count) store_pack(to + at, part);
  }
}

template <int N, QuantizationMap kMap>
__device__ void decode_lane(float (&to)[kPerLane], const std::uint8_t* codes, float scale,
                            int count, const SharedTable<kMap>& table) {
  for (int pack = 0; pack < kPerLane / N; ++pack) {
    const int at = pack_begin<N>(pack);
    Pack<std::uint8_t, N> part{};
    if (N > 1 || at < count) part = *reinterpret_cast<const Pack<std::uint8_t, N>*>(codes + at);
    for (int k = 0; k < N; ++k) to[pack * N + k] = table.values[part.values[k]] * scale;
  }
}

/// Returns the largest magnitude of the warp's elements. Returns 0 if this magnitude is subnormal,
/// and NaN if an element is infinite or NaN.
__device__ inline float scale_of_warp(const float (&x)[kPerLane]) {
  constexpr unsigned int kInfinity = 0x7F800000u;
  constexpr unsigned int kMinNormal = 0x00800000u;
  constexpr unsigned int kNan = 0x7FC00000u;
  unsigned int largest = 0;
  for (float value : x) {
    const unsigned int bits = std::bit_cast<unsigned int>(value) & 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (largest >= kInfinity) return std::bit_cast<float>(kNan);
  return largest < kMinNormal ? 0.0f : std::bit_cast<float>(largest);
}

/// Writes the scale and the codes. The codes are 0 if the scale is 0 or NaN. All lanes must call
/// it.
template <int N, QuantizationMap kMap>
__device__ void encode_lane(std::uint8_t* codes, float* scale_to, const float (&x)[kPerLane],
                            int count, const SharedTable<kMap>& table) {
  const float scale = scale_of_warp(x);
  if (threadIdx.x % kWarp == 0) *scale_to = scale;
  const bool coded = scale > 0.0f;
  const float inverse = 1.0f / scale;
  for (int pack = 0; pack < kPerLane / N; ++pack) {
    const int at = pack_begin<N>(pack);
    Pack<std::uint8_t, N> part{};
    for (int k = 0; k < N && coded; ++k) {
      const int place = place_of<kMap>(x[pack * N + k], scale, inverse, table.bounds);
      part.values[k] = static_cast<std::uint8_t>(code_of(kMap, place));
    }
    if (N > 1 || at < count) *reinterpret_cast<Pack<std::uint8_t, N>*>(codes + at) = part;
  }
}

template <class Body>
__global__ void __launch_bounds__(kQuantizingThreads)
    quantized_blocks_kernel(Body body, std::int64_t elements, bool packed) {
  const SharedTables tables{load_table<QuantizationMap::kSigned>(),
                            load_table<QuantizationMap::kUnsigned>()};
  const std::int64_t blocks = quantization_blocks(elements);
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kQuantizingWarps;
  std::int64_t block =
      static_cast<std::int64_t>(blockIdx.x) * kQuantizingWarps + threadIdx.x / kWarp;
  for (; block < blocks; block += warps) {
    const std::int64_t begin = block * kQuantizationBlock;
    if (packed && begin + kQuantizationBlock <= elements) {
      body.template at<kPackSize<float>>(block, begin, kQuantizationBlock, tables);
    } else {
      const std::int64_t rest = elements - begin;
      const int count = static_cast<int>(rest < kQuantizationBlock ? rest : kQuantizationBlock);
      body.template at<1>(block, begin, count, tables);
    }
  }
}

/// Enqueues body.at<N>(block, first element, number of elements, tables) with one warp per
/// quantization block. Uses packs if all of `begins`, the arrays that the body uses, are aligned.
template <class Body, class... Pointers>
void for_quantized_blocks(const Stream& stream, const char* name, std::int64_t elements,
                          const Body& body, Pointers... begins) {
  const std::int64_t wanted =
      (quantization_blocks(elements) + kQuantizingWarps - 1) / kQuantizingWarps;
  const Grid grid{.x = std::min(wanted, kMaxQuantizingBlocks), .threads = kQuantizingThreads};
  launch(stream, name, quantized_blocks_kernel<Body>, grid, body, elements,
         packs_aligned(begins...));
}

}  // namespace hybrid_trainer::kernels::cuda
