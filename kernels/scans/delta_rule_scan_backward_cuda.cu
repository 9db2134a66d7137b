// Gradients of a delta rule's scan. The backward pass over the chunks takes as long as the forward
// pass. Then each chunk of a value head takes four products with states and two of tokens. For D_k
// and D_v 128 in f32 these are 11 MFLOP on 0.3 MB, 0.3 µs of a whole H100; in bf16 they take 0.1
// µs.
//
// The gradients of queries and keys are sums over the value heads that share them, in the order of
// these heads. For each chunk and value head of 128 this takes four products with a state. In bf16
// the limit is reading both states, 0.13 MB; in f32 it is 8 MFLOP, 0.2 µs of a whole H100.

#include "kernels/backend/reduce.cuh"
#include "kernels/scans/delta_rule_scan.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

template <class T>
struct KeyGradientTensors {
  const T* dy;
  const float* states;
  const float* deltas;
  const float* dstates;
  const float* dright;
  float* dscores;  // (2, B·K·chunks, 64, 64): ⟨q_i, k_j⟩, ⟨k_i, k_j⟩
  float* dkeys;    // (B·T, 2·K·D_k): of queries and keys times their factors
};

/// Computes the gradients of the scores ⟨q_i, k_j⟩ (blockIdx.y 0) and, as used in M, ⟨k_i, k_j⟩
/// (1). Grid: items of key heads, 2.
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

/// Computes the gradients of queries or keys times their factors, for 64 columns of a chunk.
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
  /// Adds left (i, v) times the rows of a state for the block's columns.
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
  /// Adds the contributions of both scores to the gradient of the keys. The keys are the right
  /// factor of ⟨q_i, k_j⟩, and both factors of ⟨k_i, k_j⟩.
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

/// Grid: items of key heads, tiles of the columns of queries, then of keys.
template <class T>
__global__ void __launch_bounds__(kProductThreads, 3)
    delta_key_gradients_kernel(KeyGradientTensors<T> to, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  DeltaKeyGradients<T>(to, at, sizes, decay).run();
}

constexpr int kRowThreadsOfKeys = 256;

/// Computes the gradients through the normalization. Uses one warp per query and per key.
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
  visit_real(dy.dtype(), [&]<class T>(T) {
    const DeltaTensors<T> at(input, chunks.factors);
    const KeyGradientTensors<T> to{dy.data<T>(),
                                   passed.states.data<float>(),
                                   passed.deltas.data<float>(),
                                   passed.dstates.data<float>(),
                                   passed.dright.data<float>(),
                                   dscores.data<float>(),
                                   dkeys.data<float>()};
    Grid grid{.x = sizes.key_items(),
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

namespace {

template <class T>
struct DeltaGradientTensors {
  const T* dy;
  const float* dlast_state;
  float* dfirst_state;
  T* dqkv;
  T* dgates;
  float* lines;  // (2, B·chunks, V): each chunk's contribution to the gradients of rate, bias
  const float* scores;
  const float* inverses;
  const float* states;
  const float* deltas;
  float* dstates;
  float* dright;
};

/// Backward pass over the chunks for a tile of columns of the gradient of a head's state.
template <class T, int kWidth>
class DeltaReturn {
 public:
  __device__ DeltaReturn(const DeltaGradientTensors<T>& to, const DeltaTensors<T>& at,
                         const DeltaSizes& sizes, DeltaDecay& decay)
      : to_(to),
        at_(at),
        sizes_(sizes),
        decay_(decay),
        state_(reinterpret_cast<float*>(dynamic_shared<unsigned char>() + BlockProduct<T>::kBytes)),
        right_(state_ + sizes.key_size * kWidth),
        head_(static_cast<int>(blockIdx.x) % sizes.value_heads),
        key_head_(head_ / sizes.sharing()),
        first_(static_cast<int>(blockIdx.y) * kWidth),
        sequence_(blockIdx.x / sizes.value_heads) {}

  __device__ void run() {
    const std::int64_t elements = sizes_.state_elements();
    const std::int64_t head = (sequence_ * sizes_.value_heads + head_) * elements;
    copy_state([&](std::int64_t at, float& state) {
      state = to_.dlast_state == nullptr ? 0.0f : to_.dlast_state[head + at];
    });
    for (std::int64_t chunk = sizes_.chunks - 1; chunk >= 0; --chunk) {
      const TokenChunk tokens(sizes_.length, sequence_, chunk, false);
      decay_.fill(at_, sizes_, tokens, head_);
      const std::int64_t item = value_item(sizes_, sequence_, head_, chunk);
      copy_state([&](std::int64_t at, float& state) { to_.dstates[item * elements + at] = state; });
      compute_right(tokens, chunk, item);
      previous_chunk(tokens);
    }
    __syncthreads();
    if (to_.dfirst_state == nullptr) return;
    copy_state([&](std::int64_t at, float& state) { to_.dfirst_state[head + at] = state; });
  }

 private:
  __device__ bool inside(int column) const { return first_ + column < sizes_.value_size; }
  template <class Copy>
  __device__ void copy_state(const Copy& copy) {
    for (int i = static_cast<int>(threadIdx.x); i < sizes_.key_size * kWidth;
         i += kProductThreads) {
      const int row = i / kWidth, column = i % kWidth;
      if (inside(column)) {
        copy(static_cast<std::int64_t>(row) * sizes_.value_size + first_ + column, state_[i]);
      } else {
        state_[i] = 0;
      }
    }
  }
  /// Computes the gradients of δ and then of the factor to the right of M⁻¹, in shared memory. Also
  /// writes the latter to dright.
  __device__ void compute_right(const TokenChunk& tokens, std::int64_t chunk, std::int64_t item) {
    const TokenRows<T> keys = keys_of(at_.qkv, sizes_, tokens, key_head_);
    const TokenRows<T> dy = outputs_of(to_.dy, sizes_, tokens, head_);
    const float* const scores =
        to_.scores + key_item(sizes_, sequence_, key_head_, chunk) * kChunkScores;
    product_.set_zero();
    product_.add(along_rows(keys),
                 across_depth([&](int v, int d) { return state_[d * kWidth + v]; }),
                 sizes_.key_size);
    product_.each(
        [&](int, int j, int, float& sum) { sum *= decay_.rest[j] * decay_.key_factor[j]; });
    product_.add(across_depth([&](int j, int i) {
                   return decay_.between(i, j, false) * scores[i * kChunkTokens + j];
                 }),
                 across_rows(dy.from_column(first_)), kChunkTokens);
    product_.each([&](int, int j, int v, float sum) { right_[j * kWidth + v] = sum; });
    const float* const inverse = to_.inverses + item * kChunkScores;
    product_.set_zero();
    product_.add(across_depth([&](int i, int j) { return inverse[j * kChunkTokens + i]; }),
                 across_depth([&](int v, int j) { return right_[j * kWidth + v]; }), kChunkTokens);
    __syncthreads();
    float* const dright =
        to_.dright + static_cast<std::int64_t>(head_) * sizes_.value_size + first_;
    product_.each([&](int, int i, int v, float sum) {
      right_[i * kWidth + v] = sum;
      if (i < tokens.tokens && inside(v)) dright[tokens.row(i) * sizes_.values() + v] = sum;
    });
  }
  __device__ void previous_chunk(const TokenChunk& tokens) {
    const TokenRows<T> keys = keys_of(at_.qkv, sizes_, tokens, key_head_);
    const TokenRows<T> queries = queries_of(at_.qkv, sizes_, tokens, key_head_);
    const TokenRows<T> dy = outputs_of(to_.dy, sizes_, tokens, head_);
    for (int first = 0; first < sizes_.key_size; first += kProductSide) {
      product_.set_zero();
      product_.add(across_rows(queries.from_column(first)), across_depth([&](int v, int i) {
                     return decay_.carried[i] * decay_.query_factor[i] * dy(i, first_ + v);
                   }),
                   kChunkTokens);
      product_.add(across_rows(keys.from_column(first)), across_depth([&](int v, int i) {
                     return -decay_.beta[i] * decay_.carried[i] * decay_.key_factor[i] *
                            right_[i * kWidth + v];
                   }),
                   kChunkTokens);
      product_.each([&](int, int d, int v, float sum) {
        if (first + d >= sizes_.key_size) return;
        float& state = state_[(first + d) * kWidth + v];
        state = decay_.total * state + sum;
      });
    }
  }

  const DeltaGradientTensors<T>& to_;
  const DeltaTensors<T>& at_;
  const DeltaSizes& sizes_;
  DeltaDecay& decay_;
  float *state_, *right_;
  int head_, key_head_, first_;
  std::int64_t sequence_;
  BlockProduct<T, kWidth> product_;
};

/// Grid: sequences by value heads, tiles of a head's columns.
template <class T, int kWidth>
__global__ void __launch_bounds__(kProductThreads, 2)
    delta_return_kernel(DeltaGradientTensors<T> to, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  DeltaReturn<T, kWidth>(to, at, sizes, decay).run();
}

/// Terms of the gradients of the gates of a head.
struct GateParts : ExponentParts {
  float dbeta[kChunkTokens];
};

/// Computes the gradients of a chunk's values and gates, for one head.
template <class T>
class DeltaGateGradients {
 public:
  __device__ DeltaGateGradients(const DeltaGradientTensors<T>& to, const DeltaTensors<T>& at,
                                const DeltaSizes& sizes, DeltaDecay& decay)
      : to_(to),
        at_(at),
        sizes_(sizes),
        decay_(decay),
        parts_(*reinterpret_cast<GateParts*>(dynamic_shared<unsigned char>() +
                                             BlockProduct<T>::kBytes)),
        item_(sizes, sizes.value_heads, blockIdx.x),
        tokens_(item_.tokens(sizes)),
        key_head_(item_.head / sizes.sharing()) {}

  __device__ void run() {
    decay_.fill(at_, sizes_, tokens_, item_.head);
    for (int i = static_cast<int>(threadIdx.x); i < kChunkTokens; i += kProductThreads)
      parts_.in[i] = parts_.out[i] = parts_.dbeta[i] = 0;
    for (int first = 0; first < sizes_.value_size; first += kProductSide) {
      add_states(first);
      write_values(first);
    }
    compute_between();
    finish();
  }

 private:
  template <class U>
  __device__ TokenRows<U> rows_of(const U* matrix) const {
    return outputs_of(matrix, sizes_, tokens_, item_.head);
  }
  __device__ const float* scores(bool of_keys) const {
    const std::int64_t item = key_item(sizes_, item_.sequence, key_head_, item_.chunk);
    return to_.scores + (of_keys ? sizes_.key_items() + item : item) * kChunkScores;
  }
  /// Computes the product of `rows` and columns [first, first + 64) of a state.
  __device__ void multiply_state(const TokenRows<T>& rows, const float* states, int first) {
    const float* const state =
        states + static_cast<std::int64_t>(blockIdx.x) * sizes_.state_elements() + first;
    product_.set_zero();
    product_.add(along_rows(rows), across_depth([&](int v, int d) {
                   return first + v < sizes_.value_size ? state[d * sizes_.value_size + v] : 0.0f;
                 }),
                 sizes_.key_size);
  }
  /// Adds the terms of contributions from the state before the chunk and to the state after it.
  __device__ void add_states(int first) {
    const TokenRows<T> keys = keys_of(at_.qkv, sizes_, tokens_, key_head_);
    const TokenRows<T> dy = rows_of(to_.dy),
                       values = values_of(at_.qkv, sizes_, tokens_, item_.head);
    const TokenRows<float> dright = rows_of<float>(to_.dright), deltas = rows_of(to_.deltas);
    multiply_state(queries_of(at_.qkv, sizes_, tokens_, key_head_), to_.states, first);
    product_.add_row_sums(parts_.in, [&](int i, int v, float sum) {
      return decay_.carried[i] * decay_.query_factor[i] * sum * dy(i, first + v);
    });
    multiply_state(keys, to_.states, first);
    product_.add_row_sums(parts_.in, [&](int i, int v, float sum) {
      return -decay_.beta[i] * decay_.carried[i] * decay_.key_factor[i] * sum *
             dright(i, first + v);
    });
    product_.add_row_sums(parts_.dbeta, [&](int i, int v, float sum) {
      const float before = decay_.carried[i] * decay_.key_factor[i] * sum;
      return (values(i, first + v) - before) * dright(i, first + v);
    });
    multiply_state(keys, to_.dstates, first);
    product_.add_row_sums(parts_.out, [&](int j, int v, float sum) {
      return decay_.rest[j] * decay_.key_factor[j] * sum * deltas(j, first + v);
    });
  }
  __device__ void write_values(int first) {
    if (to_.dqkv == nullptr) return;
    const TokenRows<float> dright = rows_of<float>(to_.dright);
    T* const dvalues = to_.dqkv + 2 * sizes_.keys() +
                       static_cast<std::int64_t>(item_.head) * sizes_.value_size + first;
    for (int at = static_cast<int>(threadIdx.x); at < kChunkScores; at += kProductThreads) {
      const int i = at / kProductSide, v = at % kProductSide;
      if (i < tokens_.tokens && first + v < sizes_.value_size)
        store(dvalues + tokens_.row(i) * sizes_.columns + v, decay_.beta[i] * dright(i, first + v));
    }
  }
  /// Computes the terms of the contributions of token j to token i, through the output and δ of i.
  __device__ void compute_between() {
    const TokenRows<float> deltas = rows_of(to_.deltas);
    const float *const of_queries = scores(false), *const of_keys = scores(true);
    product_.set_zero();
    product_.add(along_rows(rows_of(to_.dy)), along_rows(deltas), sizes_.value_size);
    product_.each([&](int, int i, int j, float sum) {
      parts_.between[i][j] = decay_.between(i, j, false) * sum * of_queries[i * kChunkTokens + j];
    });
    product_.set_zero();
    product_.add(along_rows(rows_of<float>(to_.dright)), along_rows(deltas), sizes_.value_size);
    product_.each([&](int, int i, int j, float& sum) {
      sum *= -decay_.between(i, j, true) * of_keys[i * kChunkTokens + j];
      parts_.between[i][j] += decay_.beta[i] * sum;
    });
    product_.add_row_sums(parts_.dbeta, [](int, int, float sum) { return sum; });
  }
  __device__ void finish() {
    const int t = static_cast<int>(threadIdx.x);
    const bool exists = t < tokens_.tokens;
    const std::int64_t elements = sizes_.state_elements(), at = blockIdx.x * elements;
    const float whole = decay_.total * dot_states(to_.states + at, to_.dstates + at, elements);
    const float da = parts_.sum(whole);
    float of_rate = 0, of_bias = 0;
    if (exists) {
      const float beta = decay_.beta[t];
      of_rate = decay_.exponent[t] * da;
      // The order of the factors ensures that a large rate times a slope of 0 is 0.
      of_bias = decay_rate(at_.log_rate[item_.head]) * sigmoid(decay_.step[t]) * da;
      if (to_.dgates != nullptr) {
        T* const gates = to_.dgates + (tokens_.row(t) + 1) * sizes_.gate_columns -
                         2 * sizes_.value_heads + item_.head;
        store(gates, parts_.dbeta[t] * beta * (1.0f - beta));
        store(gates + sizes_.value_heads, of_bias);
      }
    }
    const std::int64_t line =
        (item_.sequence * sizes_.chunks + item_.chunk) * sizes_.value_heads + item_.head;
    const float rate = reduce_block(of_rate, Sum{}, 0.0f);
    const float bias = reduce_block(of_bias, Sum{}, 0.0f);
    if (t == 0) to_.lines[line] = rate, to_.lines[sizes_.items() + line] = bias;
  }

  const DeltaGradientTensors<T>& to_;
  const DeltaTensors<T>& at_;
  const DeltaSizes& sizes_;
  DeltaDecay& decay_;
  GateParts& parts_;
  DeltaItem item_;
  TokenChunk tokens_;
  int key_head_;
  BlockProduct<T> product_;
};

template <class T>
__global__ void __launch_bounds__(kProductThreads, 2)
    delta_gate_gradients_kernel(DeltaGradientTensors<T> to, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  DeltaGateGradients<T>(to, at, sizes, decay).run();
}

template <class T>
void launch_delta_gradients(const DeltaGradientTensors<T>& to, const DeltaTensors<T>& at,
                            const DeltaSizes& sizes, const Stream& stream) {
  const PassGrid pass(sizes, BlockProduct<T>::kBytes, stream);
  launch(stream, "delta_return",
         pass.narrow ? delta_return_kernel<T, kNarrow> : delta_return_kernel<T, kProductSide>,
         pass.grid, to, at, sizes);
  launch(stream, "delta_gate_gradients", delta_gate_gradients_kernel<T>,
         Grid{.x = sizes.items(),
              .threads = kProductThreads,
              .shared_bytes = BlockProduct<T>::kBytes + sizeof(GateParts)},
         to, at, sizes);
}

}  // namespace

void delta_rule_scan_backward(const DeltaRuleGradients& gradients, const Tensor& dy,
                              const Tensor& dlast_state, const DeltaRuleInput& input,
                              const DeltaRuleSpec& spec, const Stream& stream) {
  const DeltaSizes sizes(input.qkv, input.gates, spec);
  const auto space = [&](std::int64_t elements) {
    return empty_workspace(elements, DType::kF32, stream);
  };
  const DeltaChunks chunks(sizes, stream);
  const DeltaBackward passed{
      space(sizes.items() * sizes.state_elements()), space(sizes.rows() * sizes.values()),
      space(sizes.items() * sizes.state_elements()), space(sizes.rows() * sizes.values())};
  const Tensor lines = space(2 * sizes.items());
  prepare_delta_chunks(chunks, input, sizes, stream);
  pass_delta_chunks({{}, {}, passed.states, passed.deltas}, chunks, input, sizes, stream);
  visit_real(dy.dtype(), [&]<class T>(T) {
    launch_delta_gradients<T>(
        {dy.data<T>(), optional_data<float>(dlast_state),
         optional_data<float>(gradients.first_state), optional_data<T>(gradients.qkv),
         optional_data<T>(gradients.gates), lines.data<float>(), chunks.scores.data<float>(),
         chunks.inverses.data<float>(), passed.states.data<float>(), passed.deltas.data<float>(),
         passed.dstates.data<float>(), passed.dright.data<float>()},
        DeltaTensors<T>(input, chunks.factors), sizes, stream);
  });
  const bool adds = gradients.mode == GradientMode::kAccumulate;
  const std::int64_t rows = sizes.batch * sizes.chunks;
  if (gradients.log_rate)
    column_sums<float>(gradients.log_rate.data<float>(), lines.data<float>(), rows,
                       spec.value_heads, adds, stream);
  if (gradients.step_bias)
    column_sums<float>(gradients.step_bias.data<float>(), lines.data<float>() + sizes.items(), rows,
                       spec.value_heads, adds, stream);
  if (gradients.qkv) compute_key_gradients(gradients.qkv, passed, dy, chunks, input, sizes, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
