// Chunks of 64 tokens of a sequence, and the decay of a state within a chunk. Tokens are counted in
// the order of the scan. With c_i the sum of the exponents a up to token i of the chunk, the share
// e^{c_i − c_j} of token j's contribution remains at token i; this share is 0 if a document begins
// in between.

#pragma once

#include "kernels/products/block_product.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr int kChunkTokens = kProductSide;
constexpr int kChunkScores = kChunkTokens * kChunkTokens;

inline std::int64_t chunks_of(std::int64_t length) {
  return (length + kChunkTokens - 1) / kChunkTokens;
}

struct TokenChunk {
  __device__ TokenChunk(std::int64_t length, std::int64_t sequence, std::int64_t chunk,
                        bool reversed)
      : direction(reversed ? -1 : 1), length(length) {
    const std::int64_t first = chunk * kChunkTokens, left = length - first;
    tokens = left < kChunkTokens ? static_cast<int>(left) : kChunkTokens;
    place = reversed ? length - 1 - first : first;
    first_row = sequence * length + place;
  }
  /// Returns the row of token i in a matrix with the tokens of all sequences.
  __device__ std::int64_t row(int i) const { return first_row + direction * i; }
  /// Returns whether token i is the first of its document in scan order.
  __device__ bool begins(const std::int32_t* positions, int i) const {
    if (positions == nullptr) return false;
    if (direction > 0) return positions[row(i)] == 0;
    return place - i + 1 < length && positions[row(i) + 1] == 0;
  }
  int direction, tokens;
  std::int64_t length, place, first_row;
};

/// Columns [first, first + size) of a matrix, for a chunk's tokens. Elements outside are 0.
template <class T>
struct TokenRows {
  __device__ TokenRows(const T* matrix, const TokenChunk& chunk, std::int64_t columns,
                       std::int64_t first, int size)
      : from(matrix + chunk.first_row * columns + first),
        stride(static_cast<int>(chunk.direction * columns)),
        tokens(chunk.tokens),
        size(size),
        even((columns | size) % 2 == 0 &&
             reinterpret_cast<std::uintptr_t>(from) % (2 * sizeof(T)) == 0) {}
  __device__ float operator()(int i, int column) const {
    return i < tokens && column < size ? load(from + i * stride + column) : 0.0f;
  }
  /// Returns columns `column` and column + 1 in bf16. `column` must be even.
  __device__ std::uint32_t pair(int i, int column) const {
    if (!even) return pack_pair((*this)(i, column), (*this)(i, column + 1));
    if (i >= tokens || column >= size) return 0;
    float values[2];
    load_pack(values, from + i * stride + column);
    return pack_pair(values[0], values[1]);
  }
  /// Returns the columns starting with `first`, which must be a multiple of 64.
  __device__ TokenRows from_column(int first) const {
    TokenRows rows = *this;
    rows.from += first;
    rows.size -= first;
    return rows;
  }
  const T* from;
  int stride, tokens, size;
  bool even;
};

/// Operand whose depth is the columns. Tokens are the left operand's rows or the right's columns.
template <class T>
struct RowsAlong {
  TokenRows<T> rows;
  __device__ float operator()(int i, int column) const { return rows(i, column); }
  __device__ std::uint32_t pair(int i, int column) const { return rows.pair(i, column); }
};
/// Operand whose depth is the tokens.
template <class T>
struct RowsAcross {
  TokenRows<T> rows;
  __device__ float operator()(int column, int i) const { return rows(i, column); }
  __device__ std::uint32_t pair(int i, int column) const { return rows.pair(i, column); }
};
template <class T>
__device__ ProductOperand<true, RowsAlong<T>> along_rows(const TokenRows<T>& rows) {
  return {{rows}};
}
template <class T>
__device__ ProductOperand<false, RowsAcross<T>> across_rows(const TokenRows<T>& rows) {
  return {{rows}};
}

/// Returns the combined values of the threads up to this one, for each of the first 64 threads. All
/// threads of the block must call it.
template <class V, class Combine>
__device__ V scan_tokens(V value, const Combine& combine) {
  __shared__ V of_first_warp;
  const int thread = static_cast<int>(threadIdx.x);
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const V before = __shfl_up_sync(kAllLanes, value, distance);
    if (thread % kWarp >= distance) value = combine(before, value);
  }
  __syncthreads();
  if (thread == kWarp - 1) of_first_warp = value;
  __syncthreads();
  return thread < kWarp ? value : combine(of_first_warp, value);
}

constexpr float kFastestDecay = -3e38f;

/// Returns −e^log_rate, limited to finite values so that the product with 0 is 0. NaN stays NaN.
__device__ inline float decay_rate(float log_rate) {
  const float rate = -expf(log_rate);
  return rate < kFastestDecay ? kFastestDecay : rate;
}
/// Returns the exponent of the decay over `time`, finite unless it is NaN.
__device__ inline float decay_exponent(float log_rate, float time) {
  const float exponent = decay_rate(log_rate) * time;
  return exponent < kFastestDecay ? kFastestDecay : exponent;
}

/// Decay of a head within a chunk, in shared memory. Each sum is stored as two floats, so that
/// differences of large sums are accurate enough. If a decay is 0 in f32, the sum restarts.
struct ChunkDecay {
  static constexpr float kNothing = -104;            // e^−104 is 0 in f32
  float sum[kChunkTokens], remainder[kChunkTokens];  // c_i
  float carried[kChunkTokens];                       // share of the state before in token i
  float rest[kChunkTokens];  // share of token j in the state after; 0 beyond the last token
  int begin[kChunkTokens];   // first token of the document of token i
  float total;               // share of the state before the chunk in the one after it

  /// Computes the decay. All threads of the block must call it; thread i passes the exponent of
  /// token i. The decay before the first token of a document has no effect.
  __device__ void fill(const TokenChunk& chunk, const std::int32_t* positions, float exponent) {
    const int i = static_cast<int>(threadIdx.x), last = kChunkTokens - 1;
    const bool exists = i < chunk.tokens;
    const bool begins = exists && (exponent < kNothing || chunk.begins(positions, i));
    const double up_to = scan_tokens(exists && !begins ? double{exponent} : 0.0, Sum{});
    const float from = scan_tokens(begins ? static_cast<float>(i) : -1.0f, Max{});
    __syncthreads();  // all threads have read the decay of the previous head
    if (i <= last) {
      sum[i] = static_cast<float>(up_to);
      remainder[i] = static_cast<float>(up_to - double{sum[i]});
      carried[i] = from < 0 ? expf(sum[i]) : 0.0f;
      begin[i] = from < 0 ? 0 : static_cast<int>(from);
    }
    __syncthreads();
    if (i == last) total = carried[i];
    if (i <= last) rest[i] = exists && i >= begin[last] ? left(last, i) : 0.0f;
    __syncthreads();
  }
  /// Returns token j's share that remains at token i, for j <= i (j < i if `shifted`); otherwise 0.
  __device__ float between(int i, int j, bool shifted) const {
    return j >= begin[i] && (shifted ? j < i : j <= i) ? left(i, j) : 0.0f;
  }

 private:
  __device__ float left(int i, int j) const {
    return expf((sum[i] - sum[j]) + (remainder[i] - remainder[j]));
  }
};

/// Terms of the gradient of a token's exponent, in shared memory. Each term is for the contribution
/// of a token or state to a later token or state.
struct ExponentParts {
  float in[kChunkTokens];                         // from the state before the chunk to token i
  float out[kChunkTokens];                        // from token j to the state after the chunk
  float between[kChunkTokens][kChunkTokens + 1];  // from token j to token i

  /// Returns the gradient of the exponent of the thread's token t: the sum of the terms from before
  /// t to t or later. `whole` is the term from the state before the chunk to the state after it.
  /// All threads of the block must call it, exactly once.
  __device__ float sum(float whole) {
    const int t = static_cast<int>(threadIdx.x);
    __syncthreads();
    for (int i = kChunkTokens - 2; i >= 0 && t < kChunkTokens; --i)
      between[i][t] += between[i + 1][t];
    __syncthreads();
    for (int j = 0; j < kChunkTokens && t < kChunkTokens; ++j)
      whole += j < t ? between[t][j] + out[j] : in[j];
    return whole;
  }
};

/// Returns the dot product of two states in each thread. All threads of the block must call it.
__device__ inline float dot_states(const float* x, const float* y, std::int64_t elements) {
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < elements; i += blockDim.x) sum += x[i] * y[i];
  return reduce_block(sum, Sum{}, 0.0f);
}

constexpr int kNarrow = 32;  // columns per tile of a product with small heads

/// Returns the number of blocks of 64 that cover `size` rows or columns.
inline unsigned int product_tiles(int size) {
  return static_cast<unsigned int>((size + kProductSide - 1) / kProductSide);
}

}  // namespace hybrid_trainer::kernels::cuda
