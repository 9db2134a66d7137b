#pragma once

// What the backward kernels on the tensor cores share: query terms of a tile, and scores that
// become weights and gradients.

#include "kernels/cuda/attention_tensor_core.cuh"

namespace hybrid_trainer::kernels::cuda {

/// Which side of the scores a warp's rows are, and whose gradients it sums; the other side passes by
/// in tiles.
enum class Owns { kQueries, kKeys, kValues, kKeysAndValues };
constexpr bool owns_keys(Owns what) { return what != Owns::kQueries; }

/// A thread's query terms where its warp owns queries.
template <int kRowTiles>
struct OwnTerms {
  /// `row`: row 0 of the warp.
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

/// Query terms of a passing tile in shared memory: kPassing of each, one array after the other.
template <int kPassing>
struct PassingTerms {
  /// Starts to copy those of queries [first, first + kPassing).
  template <bool kPlain>
  __device__ void copy_async(const QueryTerms& all, int first) const {
    constexpr int kCopies = kPassing / 4;  // of 16 bytes, of an array
    const int array = static_cast<int>(threadIdx.x) / kCopies;
    const int i = static_cast<int>(threadIdx.x) % kCopies * 4;
    if (array >= (kPlain ? 2 : 3)) return;
    const void* from = all.exponents + first + i;
    if (array == 1) from = all.corrections + first + i;
    if (array == 2) from = all.first_keys + first + i;
    cuda::copy_async(shared_address(begin + array * kPassing + i), from, true);
  }
  __device__ const float* exponents(int at) const { return begin + at; }
  __device__ const float* corrections(int at) const { return begin + kPassing + at; }
  __device__ const int* first_keys(int at) const {
    return reinterpret_cast<const int*>(begin + 2 * kPassing + at);
  }
  float* begin;
};

/// Where a part of the product is: the first passing row in its tile, key 0 of the part, and by how
/// many positions query 0 is ahead of key 0.
struct Place {
  int passing, key, ahead;
};

/// Scores become weights, dweights become dscores / scale. Where `masked`, both become 0 for keys
/// that a query does not see.
template <Owns kOwns, bool kPlain, int kRowTiles, int kColumnTiles, int kPassing>
__device__ void differentiate(Sums<kRowTiles, kColumnTiles>& scores,
                              Sums<kRowTiles, kColumnTiles>& dweights,
                              const OwnTerms<kRowTiles>& own, const PassingTerms<kPassing>& passing,
                              bool masked, const Place& place, const AttentionSizes& sizes) {
  constexpr bool kKeys = owns_keys(kOwns);
  const int lane = lane_of_warp();
  const float scale = sizes.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    float exponents[2], corrections[2];
    Pack<int, 2> first_keys;
    if constexpr (kKeys) {
      const int at = place.passing + 8 * n + lane % 4 * 2;
      load_pack(exponents, passing.exponents(at));
      load_pack(corrections, passing.corrections(at));
      if (!kPlain) first_keys = *reinterpret_cast<const Pack<int, 2>*>(passing.first_keys(at));
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

/// The end of the queries from `first` on that see keys before `key_end`, rounded up to a tile of
/// kPassing. The lanes of a warp ask for a tile each.
template <int kPassing>
__device__ int end_of_seeing(const QueryTerms& terms, int first, int key_end, int length) {
  for (int at = first + kPassing;; at += 32 * kPassing) {
    const int query = at + lane_of_warp() * kPassing;
    const bool sees = query < length && terms.first_keys[query] < key_end;
    const int tiles = __popc(__ballot_sync(0xFFFFFFFFu, sees));  // first keys never fall
    const int end = at + tiles * kPassing;
    if (tiles < 32) return end < length ? end : length;
  }
}

/// The first query from `first` on in a block of the pattern, if there is one, that sees one of kKeys
/// keys from `key` on; `end` where there is none. The lanes of a warp ask for a block each.
template <int kKeys>
__device__ int next_seeing(const AttentionSizes& sizes, int head, int key, int first, int end) {
  const BlockPattern& pattern = sizes.pattern;
  if (!pattern.is_on()) return first;
  const int first_block = key / pattern.block, last_block = (key + kKeys - 1) / pattern.block;
  for (int block = first / pattern.block; block * pattern.block < end; block += 32) {
    const int own = block + lane_of_warp();
    const bool sees = pattern.next_seen(head, own, first_block) <= last_block;
    const unsigned int lanes = __ballot_sync(0xFFFFFFFFu, sees);
    if (lanes == 0) continue;
    const int lane = __popc((lanes & (~lanes + 1)) - 1);  // the lowest
    const int query = (block + lane) * pattern.block;
    return query < first ? first : query < end ? query : end;
  }
  return end;
}

}  // namespace hybrid_trainer::kernels::cuda
