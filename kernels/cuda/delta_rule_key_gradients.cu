// Gradients of a delta rule's queries and keys, each of which sums those of the heads of values that
// share it, in their order. For each chunk and head of values of 128 four products of a state, in bf16
// bound by reading both states, 0.13 MB, in f32 by 8 MFLOP, 0.2 µs of a whole H100.

#include "kernels/cuda/delta_rule_scan.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

template <class T>
struct KeyGradientTensors {
  const T* dy;
  const float* states;
  const float* deltas;
  const float* dstates;
  const float* dright;
  float* dscores;  // (2, B·K·chunks, 64, 64): of queries and keys, of keys and keys
  float* dkeys;    // (B·T, 2·K·D_k): of queries and keys with their factors
};

/// Gradients of the scores of queries and keys, and of keys and keys, as M holds these. Grid: items of
/// heads of keys, then 2.
template <class T>
__global__ void __launch_bounds__(kProductThreads, 3)
    delta_score_gradients_kernel(KeyGradientTensors<T> to, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  const DeltaItem item(sizes, sizes.key_heads, blockIdx.x);
  const TokenChunk tokens = item.tokens(sizes);
  const bool of_keys = blockIdx.y == 1;
  BlockProduct<T> product;
  float sums[BlockProduct<T>::kSums] = {};
  for (int h = 0; h < sizes.sharing(); ++h) {
    const int head = item.head * sizes.sharing() + h;
    decay.fill(at, sizes, tokens, head);
    const TokenRows<T> dy = outputs_of(to.dy, sizes, tokens, head);
    const TokenRows<float> dright = outputs_of(to.dright, sizes, tokens, head);
    product.set_zero();
    product.add(along_depth([&](int i, int v) { return of_keys ? dright(i, v) : dy(i, v); }),
                along_rows(outputs_of(to.deltas, sizes, tokens, head)), sizes.value_size);
    product.each([&](int s, int i, int j, float sum) {
      const float scale = of_keys ? -decay.beta[i] : 1.0f;
      sums[s] += decay.between(i, j, of_keys) * scale * sum;
    });
  }
  float* const of_item = to.dscores + (blockIdx.y * sizes.key_items() + blockIdx.x) * kChunkScores;
  product.each([&](int s, int i, int j, float) { of_item[i * kChunkTokens + j] = sums[s]; });
}

/// Gradients of queries, or of keys, with their factors: 64 columns of a chunk of a head.
template <class T>
class DeltaKeyGradients {
 public:
  __device__ DeltaKeyGradients(const KeyGradientTensors<T>& to, const DeltaTensors<T>& at,
                               const DeltaSizes& sizes, DeltaDecay& decay)
      : to_(to),
        at_(at),
        sizes_(sizes),
        decay_(decay),
        item_(sizes, sizes.key_heads, blockIdx.x),
        tokens_(item_.tokens(sizes)),
        of_keys_(blockIdx.y >= gridDim.y / 2),
        first_(static_cast<int>(blockIdx.y % (gridDim.y / 2)) * kProductSide) {}

  __device__ void run() {
    product_.set_zero();
    for (int h = 0; h < sizes_.sharing(); ++h) {
      const int head = item_.head * sizes_.sharing() + h;
      decay_.fill(at_, sizes_, tokens_, head);
      if (of_keys_) {
        add_keys_of_states(head);
      } else {
        const TokenRows<T> dy = outputs_of(to_.dy, sizes_, tokens_, head);
        add_state(head, to_.states, [&](int i, int v) { return decay_.carried[i] * dy(i, v); });
      }
    }
    const float* const of_queries =
        to_.dscores + static_cast<std::int64_t>(blockIdx.x) * kChunkScores;
    if (of_keys_) {
      add_scores_of_keys(of_queries, of_queries + sizes_.key_items() * kChunkScores);
    } else {
      product_.add(along_depth([&](int i, int j) {
                     return of_queries[i * kChunkTokens + j] * decay_.key_factor[j];
                   }),
                   columns(keys_of(at_.qkv, sizes_, tokens_, item_.head)), kChunkTokens);
    }
    float* const to = to_.dkeys + (of_keys_ ? sizes_.keys() : 0) +
                      static_cast<std::int64_t>(item_.head) * sizes_.key_size + first_;
    product_.each([&](int, int i, int d, float sum) {
      if (i < tokens_.tokens && first_ + d < sizes_.key_size)
        to[tokens_.row(i) * 2 * sizes_.keys() + d] = sum;
    });
  }

 private:
  /// Adds left (i, v) times a state's rows of the block's columns.
  template <class Left>
  __device__ void add_state(int head, const float* states, const Left& left) {
    const float* const state =
        states + value_item(sizes_, item_.sequence, head, item_.chunk) * sizes_.state_elements();
    product_.add(along_depth(left), along_depth([&](int d, int v) {
                   return first_ + d < sizes_.key_size ? state[(first_ + d) * sizes_.value_size + v]
                                                       : 0.0f;
                 }),
                 sizes_.value_size);
  }
  __device__ void add_keys_of_states(int head) {
    const TokenRows<float> deltas = outputs_of(to_.deltas, sizes_, tokens_, head);
    const TokenRows<float> dright = outputs_of(to_.dright, sizes_, tokens_, head);
    add_state(head, to_.dstates, [&](int j, int v) { return decay_.rest[j] * deltas(j, v); });
    add_state(head, to_.states,
              [&](int i, int v) { return -decay_.beta[i] * decay_.carried[i] * dright(i, v); });
  }
  /// Adds the scores' gradients, which belong to keys as the right side and, of keys, as the left one.
  __device__ void add_scores_of_keys(const float* of_queries, const float* of_keys) {
    product_.add(across_depth([&](int j, int i) {
                   return of_queries[i * kChunkTokens + j] * decay_.query_factor[i];
                 }),
                 columns(queries_of(at_.qkv, sizes_, tokens_, item_.head)), kChunkTokens);
    product_.add(across_depth([&](int i, int j) {
                   const float both = of_keys[i * kChunkTokens + j] + of_keys[j * kChunkTokens + i];
                   return both * decay_.key_factor[j];
                 }),
                 columns(keys_of(at_.qkv, sizes_, tokens_, item_.head)), kChunkTokens);
  }
  __device__ auto columns(const TokenRows<T>& rows) const {
    return across_rows(rows.from_column(first_));
  }

  const KeyGradientTensors<T>& to_;
  const DeltaTensors<T>& at_;
  const DeltaSizes& sizes_;
  DeltaDecay& decay_;
  DeltaItem item_;
  TokenChunk tokens_;
  bool of_keys_;
  int first_;
  BlockProduct<T> product_;
};

/// Grid: items of heads of keys, tiles of queries' columns, then of keys'.
template <class T>
__global__ void __launch_bounds__(kProductThreads, 3)
    delta_key_gradients_kernel(KeyGradientTensors<T> to, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  DeltaKeyGradients<T>(to, at, sizes, decay).run();
}

constexpr int kRowThreadsOfKeys = 256;

/// Through the norm: a warp for each query and key.
template <class T>
__global__ void key_norm_backward_kernel(T* dqkv, const float* dkeys, DeltaTensors<T> at,
                                         DeltaSizes sizes) {
  const int heads = 2 * sizes.key_heads, lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t item =
      (static_cast<std::int64_t>(blockIdx.x) * kRowThreadsOfKeys + threadIdx.x) / kWarp;
  if (item >= sizes.rows() * heads) return;
  const std::int64_t row = item / heads, column = item % heads * sizes.key_size;
  const T* const x = at.qkv + row * sizes.columns + column;
  const float* const gradient = dkeys + row * 2 * sizes.keys() + column;
  float squares = 0, projection = 0;
  for (int i = lane; i < sizes.key_size; i += kWarp) {
    const float value = load(x + i);
    squares += value * value;
    projection += value * gradient[i];
  }
  squares = reduce_warp(squares, Sum{}) + kNormEpsilon;
  projection = reduce_warp(projection, Sum{}) / squares;
  const float factor = at.factors[item];
  for (int i = lane; i < sizes.key_size; i += kWarp)
    store(dqkv + row * sizes.columns + column + i,
          factor * (gradient[i] - load(x + i) * projection));
}

}  // namespace

void compute_key_gradients(const Tensor& dqkv, const DeltaBackward& passed, const Tensor& dy,
                           const DeltaChunks& chunks, const DeltaRuleInput& input,
                           const DeltaSizes& sizes, const Stream& stream) {
  const Tensor dscores = empty_workspace(2 * sizes.key_items() * kChunkScores, DType::kF32, stream);
  const Tensor dkeys = empty_workspace(sizes.rows() * 2 * sizes.keys(), DType::kF32, stream);
  visit_real(dy.dtype(), [&](auto real) {
    using T = decltype(real);
    const DeltaTensors<T> at(input, chunks.factors);
    const KeyGradientTensors<T> to{dy.data<T>(),
                                   passed.states.data<float>(),
                                   passed.deltas.data<float>(),
                                   passed.dstates.data<float>(),
                                   passed.dright.data<float>(),
                                   dscores.data<float>(),
                                   dkeys.data<float>()};
    Grid grid{.x = static_cast<unsigned int>(sizes.key_items()),
              .y = 2,
              .threads = kProductThreads,
              .shared_bytes = BlockProduct<T>::kBytes};
    launch(stream, "delta_score_gradients", delta_score_gradients_kernel<T>, grid, to, at, sizes);
    grid.y = 2 * product_tiles(sizes.key_size);
    launch(stream, "delta_key_gradients", delta_key_gradients_kernel<T>, grid, to, at, sizes);
    launch(stream, "key_norm_backward", key_norm_backward_kernel<T>,
           grid_for(sizes.rows() * 2 * sizes.key_heads * kWarp, kRowThreadsOfKeys), dqkv.data<T>(),
           dkeys.data<float>(), at, sizes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
