#pragma once

// Tiles of a head in f32 in shared memory and their products without tensor cores. A block is 16 x
// 16 threads; thread (v, u) owns rows v·kR to v·kR + kR − 1 of a tile of 16·kR rows. Tiles are
// kHead wide, a head's columns padded with zeros; rows are padded by 4 elements, so that 16-byte
// reads of neighbouring rows use different banks.

#include "kernels/cuda/attention_parts.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Which keys a query sees: all before it; those that masks leave, or with other scores; these with a
/// bias; all of another sequence.
enum class Sight { kPlain, kMasked, kBiased, kAcross };
constexpr bool is_masked(Sight sight) { return sight == Sight::kMasked || sight == Sight::kBiased; }

constexpr int kSide = 16;
constexpr unsigned int kGeneralThreads = kSide * kSide;
constexpr int kUnit = 4;  // elements of one access

template <int kWidth>
constexpr int kPitch = kWidth + kUnit;

/// Thread (v, u) of the block.
__device__ inline int thread_u() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ inline int thread_v() { return static_cast<int>(threadIdx.x) / kSide; }

/// An item's keys in `rows`.
template <Sight kSight, class T>
__device__ HeadRows<T> key_rows(T* rows, std::int64_t item, const OperandSizes& sizes) {
  if (kSight == Sight::kAcross) return {rows + sizes.keys_across_at(item), sizes.key_stride};
  return {rows + sizes.keys_at(item), sizes.stride};
}

/// Loads rows [first, first + kRows) of a head into a tile; zeros beyond its `count` rows. `units`:
/// the rows can be read four elements at a time.
template <int kRows, int kHead, class T>
__device__ void load_tile(float* tile, HeadRows<T> rows, std::int64_t first, std::int64_t count,
                          const OperandSizes& sizes, bool units) {
  const int head_size = static_cast<int>(sizes.head_size);
  for (int i = static_cast<int>(threadIdx.x) * kUnit; i < kRows * kHead;
       i += static_cast<int>(kGeneralThreads) * kUnit) {
    const int row = i / kHead, column = i % kHead;
    const T* const from = rows.begin + (first + row) * rows.stride + column;
    float values[kUnit] = {};
    if (first + row < count && column < head_size) {
      if (units) {
        load_pack(values, from);
      } else {
        for (int j = 0; j < kUnit; ++j) values[j] = column + j < head_size ? load(from + j) : 0.0f;
      }
    }
    store_pack(tile + row * kPitch<kHead> + column, values);
  }
}

/// Writes the thread's rows of `values` times `factors`: columns 64 g + 4 u + j.
template <int kR, int kHead, class T>
__device__ void store_rows(HeadRows<T> rows, const float (&values)[kR][kHead / kSide],
                           const float (&factors)[kR], std::int64_t first, std::int64_t count,
                           const OperandSizes& sizes, bool units) {
  const int head_size = static_cast<int>(sizes.head_size);
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    const std::int64_t row = first + thread_v() * kR + i;
    if (row >= count) return;
#pragma unroll
    for (int g = 0; g < kHead / (kSide * kUnit); ++g) {
      const int column = (g * kSide + thread_u()) * kUnit;
      float scaled[kUnit];
      for (int j = 0; j < kUnit; ++j) scaled[j] = values[i][g * kUnit + j] * factors[i];
      T* const to = rows.begin + row * rows.stride + column;
      if (units) {
        if (column < head_size) store_pack(to, scaled);
      } else {
        for (int j = 0; j < kUnit; ++j) {
          if (column + j < head_size) store(to + j, scaled[j]);
        }
      }
    }
  }
}

/// sums[i][j] = the product over the head of the left tile's row v·kR + i and the right one's row
/// u + 16 j.
template <int kR, int kHead>
__device__ void multiply_rows(float (&sums)[kR][kR], const float* left, const float* right,
                              const OperandSizes& sizes) {
  left += thread_v() * kR * kPitch<kHead>;
  right += thread_u() * kPitch<kHead>;
  for (auto& row : sums) {
    for (float& sum : row) sum = 0;
  }
#pragma unroll 1
  for (int k = 0; k < static_cast<int>(sizes.head_size); k += kUnit) {
    float x[kR][kUnit], z[kR][kUnit];
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      load_pack(x[i], left + i * kPitch<kHead> + k);
      load_pack(z[i], right + i * kSide * kPitch<kHead> + k);
    }
#pragma unroll
    for (int i = 0; i < kR; ++i) {
#pragma unroll
      for (int j = 0; j < kR; ++j) {
#pragma unroll
        for (int l = 0; l < kUnit; ++l) sums[i][j] += x[i][l] * z[j][l];
      }
    }
  }
}

/// Writes the thread's weights to their places in a tile of 16·kR columns: rows v·kR + i, columns u
/// + 16 j.
template <int kR>
__device__ void store_weights(float* tile, const float (&weights)[kR][kR]) {
#pragma unroll
  for (int i = 0; i < kR; ++i) {
    float* const row = tile + (thread_v() * kR + i) * kPitch<kSide * kR>;
#pragma unroll
    for (int j = 0; j < kR; ++j) row[thread_u() + kSide * j] = weights[i][j];
  }
}

/// Bit kR·i + j is set where the pattern hides the pair of the thread's row v·kR + i of queries, or of
/// keys where kKeys, and column u + 16 j of the others. None in tiles that lie within its blocks.
template <bool kKeys, int kR>
__device__ unsigned int hidden_pairs(std::int64_t item, std::int64_t first_row,
                                     std::int64_t first_column, const OperandSizes& sizes) {
  const BlockPattern& pattern = sizes.pattern;
  unsigned int pairs = 0;
  if (!pattern.is_on() || pattern.block % (kSide * kR) == 0) return pairs;
  const int head = sizes.head_of(item);
#pragma unroll 1
  for (int pair = 0; pair < kR * kR; ++pair) {
    const int row = static_cast<int>(first_row) + thread_v() * kR + pair / kR;
    const int column = static_cast<int>(first_column) + thread_u() + kSide * (pair % kR);
    const int query = kKeys ? column : row, key = kKeys ? row : column;
    if (!pattern.sees(head, query / pattern.block, key / pattern.block)) pairs |= 1u << pair;
  }
  return pairs;
}

/// sums[i][4 g + j] += the product of the weights' row v·kR + i and column 64 g + 4 u + j of the
/// right tile.
template <int kR, int kHead>
__device__ void add_weighted(float (&sums)[kR][kHead / kSide], const float* weights,
                             const float* right) {
  weights += thread_v() * kR * kPitch<kSide * kR>;
  right += thread_u() * kUnit;
#pragma unroll 1
  for (int k = 0; k < kSide * kR; k += kUnit) {
    float w[kR][kUnit];
#pragma unroll
    for (int i = 0; i < kR; ++i) load_pack(w[i], weights + i * kPitch<kSide * kR> + k);
#pragma unroll
    for (int l = 0; l < kUnit; ++l) {
#pragma unroll
      for (int g = 0; g < kHead / (kSide * kUnit); ++g) {
        float z[kUnit];
        load_pack(z, right + (k + l) * kPitch<kHead> + g * kSide * kUnit);
#pragma unroll
        for (int i = 0; i < kR; ++i) {
#pragma unroll
          for (int j = 0; j < kUnit; ++j) sums[i][g * kUnit + j] += w[i][l] * z[j];
        }
      }
    }
  }
}

template <Sight kSight>
using SightOf = std::integral_constant<Sight, kSight>;

/// Calls `function` with the width of the tiles of a head, and with what queries see, as constants.
template <class Function>
void visit_kernel(const OperandSizes& sizes, Function&& function) {
  const auto of_width = [&](auto width) {
    if (sizes.across) return function(width, SightOf<Sight::kAcross>{});
    if (sizes.bias != nullptr) return function(width, SightOf<Sight::kBiased>{});
    if (sizes.plain()) return function(width, SightOf<Sight::kPlain>{});
    function(width, SightOf<Sight::kMasked>{});
  };
  if (sizes.head_size <= 64) return of_width(std::integral_constant<int, 64>{});
  if (sizes.head_size <= 128) return of_width(std::integral_constant<int, 128>{});
  of_width(std::integral_constant<int, 256>{});
}

/// True if the rows of all heads can be read four elements at a time.
template <class... Pointers>
bool units_fit(const OperandSizes& sizes, Pointers... begins) {
  return packs_fit<float>(sizes.head_size, begins...);
}

}  // namespace hybrid_trainer::kernels::cuda
