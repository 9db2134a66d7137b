// Stable sort of the positions of a batch's tokens by token.

#pragma once

#include "kernels/backend/launch.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kDigits = 256;  // number of values of a digit
constexpr int kDigitBits = 8;
constexpr int kSortWarps = 8;
constexpr int kSortStrips = 8;  // strips of 32 items that each warp processes one after the other
constexpr int kSortTile = kSortWarps * kSortStrips * kWarp;

/// Items to sort. If `positions` is null, the positions are 0, 1, …. Keys outside [0, bound) become
/// `bound`.
struct SortItems {
  const std::int32_t* keys;
  const std::int32_t* positions;
  std::int64_t count;
  std::int32_t bound;

  __device__ std::int32_t key(std::int64_t i) const {
    const std::int32_t key = keys[i];
    return positions == nullptr && (key < 0 || key >= bound) ? bound : key;
  }
  __device__ std::int32_t position(std::int64_t i) const {
    return positions == nullptr ? static_cast<std::int32_t>(i) : positions[i];
  }
};

/// Returns a mask of the warp's lanes with the same digit. `holds`: whether the lane has an item.
__device__ inline unsigned int lanes_of_digit(int digit, bool holds) {
  unsigned int lanes = __ballot_sync(kAllLanes, holds);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = ((digit >> bit) & 1) != 0;
    const unsigned int with = __ballot_sync(kAllLanes, set);
    lanes &= set ? with : ~with;
  }
  return lanes;
}

/// Calls use(i, place) in order for those items of the block's tile that belong to the warp.
/// counters[digit] is the place of the next item with that digit.
template <class Use>
__device__ void walk_items(const SortItems& items, int shift, int* counters, Use use) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSortTile +
                             static_cast<std::int64_t>(warp) * kSortStrips * kWarp;
  for (int strip = 0; strip < kSortStrips; ++strip) {
    const std::int64_t i = begin + strip * kWarp + lane;
    const bool holds = i < items.count;
    const int digit = holds ? (items.key(i) >> shift) & (kDigits - 1) : 0;
    const unsigned int peers = lanes_of_digit(digit, holds);
    const int rank = __popc(peers & ((1u << lane) - 1));
    const int place = holds ? counters[digit] + rank : 0;
    __syncwarp();  // separates all reads from the addition, and the addition from the next strip
    if (holds && rank == 0) counters[digit] += __popc(peers);
    if (holds) use(i, place);
    __syncwarp();
  }
}

__device__ inline void count_digits(const SortItems& items, int shift,
                                    int (&counts)[kSortWarps][kDigits]) {
  for (int i = 0; i < kSortWarps; ++i) counts[i][threadIdx.x] = 0;
  __syncthreads();
  walk_items(items, shift, counts[threadIdx.x / kWarp], [](std::int64_t, int) {});
  __syncthreads();
}

/// counts[digit, tile] = the number of items in the tile with that digit.
static __global__ void histogram_kernel(std::int32_t* counts, SortItems items, int shift) {
  __shared__ int of_warp[kSortWarps][kDigits];
  count_digits(items, shift, of_warp);
  int sum = 0;
  for (int i = 0; i < kSortWarps; ++i) sum += of_warp[i][threadIdx.x];
  counts[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = sum;
}

/// Replaces counts[digit, tile] by the number of items with a smaller digit, or with this digit in
/// an earlier tile. Uses one block of 1024 threads; each warp processes the rows of its digits.
static __global__ void scan_kernel(std::int32_t* counts, std::int64_t tiles) {
  __shared__ int of_digit[kDigits];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int digit = warp; digit < kDigits; digit += warps) {
    int sum = 0;
    for (std::int64_t i = lane; i < tiles; i += kWarp) sum += counts[digit * tiles + i];
    sum = reduce_warp(sum, Sum{});
    if (lane == 0) of_digit[digit] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int base = 0;
    for (int first = 0; first < kDigits; first += kWarp) {
      int total = 0;
      const int before = sum_before(of_digit[first + lane], total);
      of_digit[first + lane] = base + before;
      base += total;
    }
  }
  __syncthreads();
  for (int digit = warp; digit < kDigits; digit += warps) {
    int base = of_digit[digit];
    for (std::int64_t first = 0; first < tiles; first += kWarp) {
      const std::int64_t i = first + lane;
      int total = 0;
      const int before = sum_before(i < tiles ? counts[digit * tiles + i] : 0, total);
      if (i < tiles) counts[digit * tiles + i] = base + before;
      base += total;
    }
  }
}

/// Writes each item to its place, given by the scanned counts.
static __global__ void scatter_kernel(std::int32_t* keys, std::int32_t* positions, SortItems items,
                                      const std::int32_t* counts, int shift) {
  __shared__ int next[kSortWarps][kDigits];  // place of each warp's next item with a digit
  count_digits(items, shift, next);
  int place = counts[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int i = 0; i < kSortWarps; ++i) {
    const int count = next[i][threadIdx.x];
    next[i][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
  walk_items(items, shift, next[threadIdx.x / kWarp], [&](std::int64_t i, int to) {
    keys[to] = items.key(i);
    positions[to] = items.position(i);
  });
}

/// Tokens of a batch and their positions, sorted by token and then by position.
struct SortedTokens {
  Tensor space;  // owns the memory that the pointers point to
  const std::int32_t* tokens;
  const std::int32_t* positions;
};

/// Sorts the tokens. Tokens outside [0, vocabulary) come last and become `vocabulary`.
inline SortedTokens sort_tokens(const std::int32_t* tokens, std::int64_t count,
                                std::int32_t vocabulary, const Stream& stream) {
  const std::int64_t tiles = (count + kSortTile - 1) / kSortTile;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(std::int32_t));
  SortedTokens sorted{empty_workspace((4 * count + kDigits * tiles) * kBytes, DType::kU8, stream),
                      nullptr, nullptr};
  auto* const space = static_cast<std::int32_t*>(sorted.space.raw());
  std::int32_t* const counts = space + 4 * count;
  const Grid grid{.x = tiles, .threads = kSortWarps * kWarp};
  SortItems items{tokens, nullptr, count, vocabulary};
  for (int shift = 0; shift == 0 || (shift < 32 && vocabulary >> shift != 0); shift += kDigitBits) {
    std::int32_t* const keys = space + shift / kDigitBits % 2 * 2 * count;
    launch(stream, "sort_histogram", histogram_kernel, grid, counts, items, shift);
    launch(stream, "sort_scan", scan_kernel, Grid{.threads = 1024}, counts, tiles);
    launch(stream, "sort_scatter", scatter_kernel, grid, keys, keys + count, items, counts, shift);
    items = {keys, keys + count, count, vocabulary};
  }
  sorted.tokens = items.keys;
  sorted.positions = items.positions;
  return sorted;
}

}  // namespace hybrid_trainer::kernels::cuda
