// What the chunks of a delta rule's scan start from: norms, scores and inverses. A chunk of a head of
// keys of 128 reads 32 kB in bf16 and writes 33 kB of scores, a head of values 16 kB of its inverse,
// at 2 MFLOP and 0.13 MFLOP: bound by memory, about 20 ns of a whole H100 a chunk and head.

#include "kernels/cuda/delta_rule_scan.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kFactorThreads = 256;

/// A warp for each query and key.
template <class T>
__global__ void delta_factors_kernel(float* factors, DeltaTensors<T> at, DeltaSizes sizes) {
  const int heads = 2 * sizes.key_heads, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t item =
      (static_cast<std::int64_t>(blockIdx.x) * kFactorThreads + threadIdx.x) / kWarp;
  if (item >= sizes.rows() * heads) return;
  const int head = static_cast<int>(item % heads);
  const T* const from =
      at.qkv + item / heads * sizes.columns + static_cast<std::int64_t>(head) * sizes.key_size;
  float squares = 0;
  for (int i = lane; i < sizes.key_size; i += kWarp) {
    const float value = load(from + i);
    squares += value * value;
  }
  squares = reduce_warp(squares, Sum{});
  const float scale = head < sizes.key_heads ? sizes.query_scale : 1.0f;
  if (lane == 0) factors[item] = scale / sqrtf(squares + kNormEpsilon);
}

/// A block for a chunk of a head of keys; grid: items, then 2: with queries, with keys.
template <class T>
__global__ void __launch_bounds__(kProductThreads, kProductBlocks)
    delta_scores_kernel(float* scores, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ float of_left[kChunkTokens], of_right[kChunkTokens];
  const DeltaItem item(sizes, sizes.key_heads, blockIdx.x);
  const TokenChunk chunk = item.tokens(sizes);
  const bool with_queries = blockIdx.y == 0;
  const int i = static_cast<int>(threadIdx.x);
  if (i < kChunkTokens) {
    const float* const factors =
        at.factors + chunk.row(i < chunk.tokens ? i : 0) * 2 * sizes.key_heads + item.head;
    of_right[i] = i < chunk.tokens ? factors[sizes.key_heads] : 0.0f;
    of_left[i] = with_queries && i < chunk.tokens ? factors[0] : of_right[i];
  }
  const TokenRows<T> keys = keys_of(at.qkv, sizes, chunk, item.head);
  BlockProduct<T> product;
  product.set_zero();
  product.add(along_rows(with_queries ? queries_of(at.qkv, sizes, chunk, item.head) : keys),
              along_rows(keys), sizes.key_size);
  float* const to = scores + (blockIdx.y * sizes.key_items() + blockIdx.x) * kChunkScores;
  product.each([&](int, int row, int column, float sum) {
    to[row * kChunkTokens + column] = sum * of_left[row] * of_right[column];
  });
}

constexpr int kSolveSide = 16;  // of the blocks on the diagonal, which are solved at once
using SolveTile = float[kChunkTokens][kChunkTokens + 1];

/// The inverse of each block on the diagonal of `lower`, the part below its diagonal of ones: a thread
/// for each column, by substitution.
__device__ inline void invert_diagonal(SolveTile& inverse, const SolveTile& lower) {
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kChunkTokens) return;
  const int first = column / kSolveSide * kSolveSide;
  for (int i = first; i < first + kSolveSide; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
    for (int k = first; k < i; ++k) sum -= lower[i][k] * inverse[k][column];
    inverse[i][column] = sum;
  }
}

/// Rows [first, first + 16) of the inverse left of the diagonal, from the rows above. All threads of
/// the block call it.
__device__ inline void invert_rows(SolveTile& inverse, const SolveTile& lower, int first,
                                   float (&sums)[kSolveSide][kChunkTokens + 1]) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int at = thread; at < kSolveSide * first; at += kProductThreads) {
    const int i = at / first, column = at % first;
    float sum = 0;
    for (int k = 0; k < first; ++k) sum += lower[first + i][k] * inverse[k][column];
    sums[i][column] = sum;
  }
  __syncthreads();
  for (int at = thread; at < kSolveSide * first; at += kProductThreads) {
    const int i = at / first, column = at % first;
    float sum = 0;
    for (int k = 0; k <= i; ++k) sum -= inverse[first + i][first + k] * sums[k][column];
    inverse[first + i][column] = sum;
  }
  __syncthreads();
}

/// What invert_chunk_kernel has in its dynamic shared memory.
struct SolveSpace {
  SolveTile lower, inverse;
  float sums[kSolveSide][kChunkTokens + 1];
};

/// M⁻¹ of a chunk of a head of values, a block each.
template <class T>
__global__ void invert_chunk_kernel(float* inverses, const float* scores, DeltaTensors<T> at,
                                    DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  SolveSpace& space = *dynamic_shared<SolveSpace>();
  const DeltaItem item(sizes, sizes.value_heads, blockIdx.x);
  decay.fill(at, sizes, item.tokens(sizes), item.head);
  const float* const of_keys =
      scores + (sizes.key_items() +
                key_item(sizes, item.sequence, item.head / sizes.sharing(), item.chunk)) *
                   kChunkScores;
  const int thread = static_cast<int>(threadIdx.x);
  for (int at_score = thread; at_score < kChunkScores; at_score += kProductThreads) {
    const int i = at_score / kChunkTokens, j = at_score % kChunkTokens;
    const float left = decay.between(i, j, true);
    space.lower[i][j] = j < i ? decay.beta[i] * left * of_keys[at_score] : 0.0f;
    space.inverse[i][j] = 0;
  }
  __syncthreads();
  invert_diagonal(space.inverse, space.lower);
  __syncthreads();
  for (int first = kSolveSide; first < kChunkTokens; first += kSolveSide)
    invert_rows(space.inverse, space.lower, first, space.sums);
  float* const to = inverses + static_cast<std::int64_t>(blockIdx.x) * kChunkScores;
  for (int at_score = thread; at_score < kChunkScores; at_score += kProductThreads)
    to[at_score] = space.inverse[at_score / kChunkTokens][at_score % kChunkTokens];
}

}  // namespace

DeltaChunks::DeltaChunks(const DeltaSizes& sizes, const Stream& stream)
    : factors(empty_workspace(sizes.rows() * 2 * sizes.key_heads, DType::kF32, stream)),
      scores(empty_workspace(2 * sizes.key_items() * kChunkScores, DType::kF32, stream)),
      inverses(empty_workspace(sizes.items() * kChunkScores, DType::kF32, stream)) {}

void compute_delta_factors(const Tensor& factors, const DeltaRuleInput& input,
                           const DeltaSizes& sizes, const Stream& stream) {
  visit_real(input.qkv.dtype(), [&](auto real) {
    using T = decltype(real);
    launch(stream, "delta_factors", delta_factors_kernel<T>,
           grid_for(sizes.rows() * 2 * sizes.key_heads * kWarp, kFactorThreads),
           factors.data<float>(), DeltaTensors<T>(input), sizes);
  });
}

void prepare_delta_chunks(const DeltaChunks& to, const DeltaRuleInput& input,
                          const DeltaSizes& sizes, const Stream& stream) {
  compute_delta_factors(to.factors, input, sizes, stream);
  visit_real(input.qkv.dtype(), [&](auto real) {
    using T = decltype(real);
    const DeltaTensors<T> at(input, to.factors);
    launch(stream, "delta_scores", delta_scores_kernel<T>,
           Grid{.x = static_cast<unsigned int>(sizes.key_items()),
                .y = 2,
                .threads = kProductThreads,
                .shared_bytes = BlockProduct<T>::kBytes},
           to.scores.data<float>(), at, sizes);
    launch(stream, "invert_chunk", invert_chunk_kernel<T>,
           Grid{.x = static_cast<unsigned int>(sizes.items()),
                .threads = kProductThreads,
                .shared_bytes = sizeof(SolveSpace)},
           to.inverses.data<float>(), to.scores.data<float>(), at, sizes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
