// Tiles of a head in bf16 in shared memory and their products on the tensor cores. Each warp owns
// 16·kRowTiles rows of the left tile and all columns of the result, so that scores become the left
// operand of the next product without leaving the warp's registers. Source: Dao 2023,
// FlashAttention-2. Also contains the shared parts of backward kernels: query terms, and the
// computation of weights and gradients from scores.

#pragma once

#include "kernels/attention/attention.cuh"
#include "kernels/backend/tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kWarps = 4;
constexpr unsigned int kCoreThreads = 32 * kWarps;
constexpr int kChunk = 8;  // elements in 16 bytes

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

/// Hyperbolic tangent, error at most 5e-7. Uses two special functions instead of tanhf's branches.
__device__ inline float fast_tanh(float x) {
  return 1.0f - __fdividef(2.0f, 1.0f + fast_exp2(2 * kLog2E * x));
}

/// A tile with rows of kHead elements. Chunk i of a row is stored at i ^ (row % 8), so that the
/// same chunk of eight adjacent rows, which is one matrix of load_matrices, uses all banks once.
template <int kHead>
struct Tile {
  int begin;  // elements from the start of the block's shared memory
  __device__ int offset(int row, int chunk) const {
    return begin + row * kHead + (chunk ^ (row & 7)) * kChunk;
  }
  __device__ BFloat16* at(int row, int chunk) const {
    return dynamic_shared<BFloat16>() + offset(row, chunk);
  }
  __device__ SharedAddress address(int row, int chunk) const {
    return shared_address(dynamic_shared<BFloat16>()) +
           static_cast<unsigned int>(offset(row, chunk)) * sizeof(BFloat16);
  }
};

/// Starts to copy rows [first, first + kRows) of a head. Fills rows from `length` on with zeros.
template <int kRows, int kHead>
__device__ void copy_rows_async(Tile<kHead> tile, HeadRows<const BFloat16> rows, std::int64_t first,
                                std::int64_t length) {
  constexpr int kChunks = kHead / kChunk, kStep = static_cast<int>(kCoreThreads) / kChunks;
  static_assert(kRows % kStep == 0);
  const int thread = hidden(static_cast<int>(threadIdx.x));
  const int row = thread / kChunks, chunk = thread % kChunks;
  const int rows_left = static_cast<int>(length - first) - row;
  const BFloat16* const from = rows.begin + first * rows.stride;  // the same for all threads
  const auto stride = static_cast<unsigned int>(rows.stride);
  unsigned int offset =
      static_cast<unsigned int>(row) * stride + static_cast<unsigned int>(chunk * kChunk);
  const SharedAddress to = tile.address(row, chunk);
#pragma unroll 1
  for (int i = 0; i < kRows; i += kStep) {
    const bool exists = i < rows_left;
    const SharedAddress at =
        kStep % 8 == 0 ? to + i * kHead * sizeof(BFloat16) : tile.address(row + i, chunk);
    copy_async(at, exists ? from + offset : rows.begin, exists);
    offset += kStep * stride;
  }
}

/// Rows [row, row + 16·kRowTiles) of a tile as the left operand, in steps of 16 columns: the first
/// kKept steps are kept in registers, and the remaining steps are read again for each product.
template <int kRowTiles, int kHead, int kKept>
class LeftRows {
 public:
  __device__ LeftRows(Tile<kHead> tile, int row) : tile_(tile), row_(row) {}
  /// Loads the kept steps. Call it after the tile has arrived.
  __device__ void keep() {
#pragma unroll
    for (int k = 0; k < kKept; ++k) read(kept_[k], k);
  }
  /// Returns columns [16 k, 16 k + 16).
  __device__ void get(std::uint32_t (&left)[kRowTiles][4], int k) const {
    if (k < kKept) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        for (int i = 0; i < 4; ++i) left[m][i] = kept_[k][m][i];
    } else {
      read(left, k);
    }
  }

 private:
  __device__ void read(std::uint32_t (&left)[kRowTiles][4], int k) const {
    const int lane = lane_of_warp();
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      load_matrices(left[m], tile_.address(row_ + 16 * m + lane % 16, 2 * k + lane / 16));
  }
  Tile<kHead> tile_;
  int row_;
  std::uint32_t kept_[kKept > 0 ? kKept : 1][kRowTiles][4];
};

/// The warp's rows of a product: (16·kRowTiles, 8·kColumnTiles) f32.
template <int kRowTiles, int kColumnTiles>
using Sums = float[kRowTiles][kColumnTiles][4];

template <int kRowTiles, int kColumnTiles>
__device__ void set_zero(Sums<kRowTiles, kColumnTiles>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
  }
}

/// sums = left rows · rows [row, row + 8·kColumnTiles) of the right tile, over the head.
template <int kRowTiles, int kColumnTiles, int kHead, int kKept>
__device__ void multiply_rows(Sums<kRowTiles, kColumnTiles>& sums,
                              const LeftRows<kRowTiles, kHead, kKept>& left, Tile<kHead> right,
                              int row) {
  const int lane = kHead > 128 ? hidden(lane_of_warp()) : lane_of_warp();
  set_zero<kRowTiles, kColumnTiles>(sums);
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
    std::uint32_t a[kRowTiles][4];
    left.get(a, k);
#pragma unroll
    for (int n = 0; n < kColumnTiles / 2; ++n) {
      std::uint32_t b[4];
      load_matrices(b,
                    right.address(row + 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add(sums[m][2 * n], a[m], b[0], b[1]);
        multiply_add(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// sums (rows, kHead) += weights · rows [row, ...) of the right tile, with weights rounded to bf16.
template <int kRowTiles, int kColumnTiles, int kHead>
__device__ void add_weighted(Sums<kRowTiles, kHead / 8>& sums,
                             const Sums<kRowTiles, kColumnTiles>& weights, Tile<kHead> right,
                             int row) {
  const int lane = kHead > 128 ? hidden(lane_of_warp()) : lane_of_warp();
#pragma unroll
  for (int k = 0; k < kColumnTiles / 2; ++k) {
    std::uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&from)[4] = weights[m][2 * k + i / 2];
        a[m][i] = pack_pair(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kHead / 16; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(b, right.address(row + 16 * k + lane % 16, 2 * n + lane / 16));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add(sums[m][2 * n], a[m], b[0], b[1]);
        multiply_add(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Writes the warp's rows, each multiplied by its factor, to rows [first + row, ...) of a head.
/// Uses rows [row, ...) of a tile as a buffer; no other warp may use these rows. factors[m][h] is
/// for row 16 m + 8 h + lane / 4.
template <int kRowTiles, int kHead>
__device__ void store_rows(HeadRows<BFloat16> rows, const Sums<kRowTiles, kHead / 8>& sums,
                           const float (&factors)[kRowTiles][2], Tile<kHead> tile, int row,
                           std::int64_t first, std::int64_t length) {
  const int lane = lane_of_warp();
  __syncwarp();  // the tile has been read
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        BFloat16* const to = tile.at(row + 16 * m + 8 * h + lane / 4, n) + lane % 4 * 2;
        *reinterpret_cast<std::uint32_t*>(to) =
            pack_pair(sums[m][n][2 * h] * factors[m][h], sums[m][n][2 * h + 1] * factors[m][h]);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kHead / kChunk;
#pragma unroll
  for (int i = lane / kChunks; i < 16 * kRowTiles; i += 32 / kChunks) {
    if (first + row + i >= length) break;
    const uint4 chunk = *reinterpret_cast<const uint4*>(tile.at(row + i, lane % kChunks));
    *reinterpret_cast<uint4*>(rows.begin + (first + row + i) * rows.stride +
                              lane % kChunks * kChunk) = chunk;
  }
}

/// The side of the scores, queries or keys, that forms a warp's rows, and the gradients that the
/// warp sums. The other side is streamed.
enum class Owns { kQueries, kKeys, kValues, kKeysAndValues };
constexpr bool owns_keys(Owns what) { return what != Owns::kQueries; }

/// Query terms of a thread whose warp owns queries.
template <int kRowTiles>
struct OwnTerms {
  /// Loads the terms. `row` is row 0 of the warp.
  template <bool kPlain>
  __device__ void keep(const QueryTerms& all, int row) {
    for (int m = 0; m < kRowTiles; ++m) {
      for (int h = 0; h < 2; ++h) {
        const int at = row + 16 * m + 8 * h + lane_of_warp() / 4;
        exponents[m][h] = all.exponents[at];
        corrections[m][h] = all.corrections[at];
        first_keys[m][h] = kPlain ? 0 : all.first_keys[at];
      }
    }
  }
  float exponents[kRowTiles][2];
  float corrections[kRowTiles][2];
  int first_keys[kRowTiles][2];
};

/// Query terms of a streamed tile in shared memory: three arrays of kStreamed elements each.
template <int kStreamed>
struct StreamedTerms {
  /// Starts to copy the terms of queries [first, first + kStreamed).
  template <bool kPlain>
  __device__ void copy_async(const QueryTerms& all, int first) const {
    constexpr int kCopies = kStreamed / 4;  // 16-byte copies per array
    const int array = static_cast<int>(threadIdx.x) / kCopies;
    const int i = static_cast<int>(threadIdx.x) % kCopies * 4;
    if (array >= (kPlain ? 2 : 3)) return;
    const void* from = all.exponents + first + i;
    if (array == 1) from = all.corrections + first + i;
    if (array == 2) from = all.first_keys + first + i;
    cuda::copy_async(shared_address(begin + array * kStreamed + i), from, true);
  }
  __device__ const float* exponents(int at) const { return begin + at; }
  __device__ const float* corrections(int at) const { return begin + kStreamed + at; }
  __device__ const int* first_keys(int at) const {
    return reinterpret_cast<const int*>(begin + 2 * kStreamed + at);
  }
  float* begin;
};

/// Location of a part of the product: the first streamed row in its tile, key 0 of the part, and
/// the position of query 0 minus position of key 0.
struct Place {
  int streamed, key, ahead;
};

/// Replaces scores by weights and dweights by dscores / scale. If `masked`, both become 0 for keys
/// that a query does not attend to.
template <Owns kOwns, bool kPlain, int kRowTiles, int kColumnTiles, int kStreamed>
__device__ void differentiate(Sums<kRowTiles, kColumnTiles>& scores,
                              Sums<kRowTiles, kColumnTiles>& dweights,
                              const OwnTerms<kRowTiles>& own,
                              const StreamedTerms<kStreamed>& streamed, bool masked,
                              const Place& place, const AttentionSizes& sizes) {
  constexpr bool kKeys = owns_keys(kOwns);
  const int lane = lane_of_warp();
  const float scale = sizes.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    float exponents[2], corrections[2];
    Pack<int, 2> first_keys;
    if constexpr (kKeys) {
      const int at = place.streamed + 8 * n + lane % 4 * 2;
      load_pack(exponents, streamed.exponents(at));
      load_pack(corrections, streamed.corrections(at));
      if (!kPlain) first_keys = *reinterpret_cast<const Pack<int, 2>*>(streamed.first_keys(at));
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float exponent = kKeys ? exponents[i % 2] : own.exponents[m][i / 2];
        const float correction = kKeys ? corrections[i % 2] : own.corrections[m][i / 2];
        const int row = 16 * m + i / 2 * 8 + lane / 4, column = 8 * n + lane % 4 * 2 + i % 2;
        const int key = kKeys ? row : column, query = kKeys ? column : row;
        bool hidden = key > place.ahead + query;
        float slope = 1;
        if constexpr (!kPlain) {
          hidden |= place.key + key < (kKeys ? first_keys.values[i % 2] : own.first_keys[m][i / 2]);
          if (sizes.cap > 0) {
            const float tangent = fast_tanh(scores[m][n][i] * (sizes.scale / sizes.cap));
            scores[m][n][i] = tangent * (sizes.cap / sizes.scale);
            slope = 1.0f - tangent * tangent;
          }
        }
        float weight = fast_exp2(scores[m][n][i] * scale - exponent);
        if (masked && hidden) weight = 0;
        scores[m][n][i] = weight;
        dweights[m][n][i] = weight * (dweights[m][n][i] - correction);
        if constexpr (!kPlain) dweights[m][n][i] *= slope;
      }
    }
  }
}

/// Returns the end of the queries from `first` on that attend to keys before `key_end`, rounded up
/// to a tile of kStreamed. Each lane of a warp tests one tile.
template <int kStreamed>
__device__ int end_of_attending(const QueryTerms& terms, int first, int key_end, int length) {
  for (int at = first + kStreamed;; at += 32 * kStreamed) {
    const int query = at + lane_of_warp() * kStreamed;
    const bool attends = query < length && terms.first_keys[query] < key_end;
    const int tiles = __popc(__ballot_sync(0xFFFFFFFFu, attends));  // first_keys never decreases
    const int end = at + tiles * kStreamed;
    if (tiles < 32) return end < length ? end : length;
  }
}

/// Returns the first query from `first` on whose pattern block attends to at least one of the kKeys
/// keys from `key` on; `end` if there is none. Each lane of a warp tests one block.
template <int kKeys>
__device__ int next_attending(const AttentionSizes& sizes, int head, int key, int first, int end) {
  const BlockPattern& pattern = sizes.pattern;
  if (!pattern.is_on()) return first;
  const int first_block = key / pattern.block, last_block = (key + kKeys - 1) / pattern.block;
  for (int block = first / pattern.block; block * pattern.block < end; block += 32) {
    const int own = block + lane_of_warp();
    const bool attends = pattern.next_visible(head, own, first_block) <= last_block;
    const unsigned int lanes = __ballot_sync(0xFFFFFFFFu, attends);
    if (lanes == 0) continue;
    const int lane = __popc((lanes & (~lanes + 1)) - 1);  // the lowest
    const int query = (block + lane) * pattern.block;
    return query < first ? first : query < end ? query : end;
  }
  return end;
}

}  // namespace hybrid_trainer::kernels::cuda
