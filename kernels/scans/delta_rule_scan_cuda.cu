// A delta rule's scan, and its step. First computes norms, scores and inverses of the chunks. A
// chunk of a key head of 128 reads 32 kB in bf16 and writes 33 kB of scores; a value head writes 16
// kB of its inverse. Memory-bound, about 20 ns of a whole H100 per chunk and head.
//
// Then the state passes through the chunks, independently for each of its columns. A block keeps 64
// or 32 columns of a head in shared memory. For each chunk and D_k 128, it multiplies 4.5 MFLOP on
// 80 kB, mostly from the L2 cache. Its multiprocessor is the limit: about 4 µs per chunk in bf16,
// 20 µs in f32. The time stays the same up to one head per multiprocessor. A step reads and writes
// the state, 8·D_k·D_v bytes per head: 32 heads of 128 take 4.2 MB, 1.4 µs at 3 TB/s.

#include "kernels/scans/delta_rule_scan.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kFactorThreads = 256;

/// One warp per query and key.
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

/// One block per chunk of a key head and kind of score: with queries (blockIdx.y 0) or with keys
/// (1). Grid: items, 2.
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

constexpr int kSolveSide = 16;  // side of the diagonal blocks, which are solved in parallel
using SolveTile = float[kChunkTokens][kChunkTokens + 1];

/// Inverts each diagonal block of 1 + `lower` by substitution, with one thread per column.
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

/// Computes rows [first, first + 16) of the inverse to the left of the diagonal block, from the
/// rows above. All threads of the block must call it.
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

struct SolveSpace {
  SolveTile lower, inverse;
  float sums[kSolveSide][kChunkTokens + 1];
};

/// Computes M⁻¹. One block for each chunk of a value head.
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
  visit_real(input.qkv.dtype(), [&]<class T>(T) {
    launch(stream, "delta_factors", delta_factors_kernel<T>,
           grid_for(sizes.rows() * 2 * sizes.key_heads * kWarp, kFactorThreads),
           factors.data<float>(), DeltaTensors<T>(input), sizes);
  });
}

void prepare_delta_chunks(const DeltaChunks& to, const DeltaRuleInput& input,
                          const DeltaSizes& sizes, const Stream& stream) {
  compute_delta_factors(to.factors, input, sizes, stream);
  visit_real(input.qkv.dtype(), [&]<class T>(T) {
    const DeltaTensors<T> at(input, to.factors);
    launch(stream, "delta_scores", delta_scores_kernel<T>,
           Grid{.x = sizes.key_items(),
                .y = 2,
                .threads = kProductThreads,
                .shared_bytes = BlockProduct<T>::kBytes},
           to.scores.data<float>(), at, sizes);
    launch(stream, "invert_chunk", invert_chunk_kernel<T>,
           Grid{.x = sizes.items(), .threads = kProductThreads, .shared_bytes = sizeof(SolveSpace)},
           to.inverses.data<float>(), to.scores.data<float>(), at, sizes);
  });
}

namespace {

template <class T>
struct DeltaOutputs {
  T* y;
  float* last_state;
  float* states;
  float* deltas;
};

struct DeltaStarts {
  const float* first_state;  // or null
  const float* scores;
  const float* inverses;
};

/// Passes a tile of columns of a head's state through the chunks, with the same columns of δ.
template <class T, int kWidth>
class DeltaPass {
 public:
  __device__ DeltaPass(const DeltaOutputs<T>& to, const DeltaStarts& from,
                       const DeltaTensors<T>& at, const DeltaSizes& sizes, DeltaDecay& decay)
      : to_(to),
        from_(from),
        at_(at),
        sizes_(sizes),
        decay_(decay),
        state_(reinterpret_cast<float*>(dynamic_shared<unsigned char>() + BlockProduct<T>::kBytes)),
        deltas_(state_ + sizes.key_size * kWidth),
        head_(static_cast<int>(blockIdx.x) % sizes.value_heads),
        key_head_(head_ / sizes.sharing()),
        first_(static_cast<int>(blockIdx.y) * kWidth),
        sequence_(blockIdx.x / sizes.value_heads) {}

  __device__ void run() {
    copy_state([&](std::int64_t at, float& state) {
      state = from_.first_state == nullptr ? 0.0f : from_.first_state[of_head(sequence_) + at];
    });
    for (std::int64_t chunk = 0; chunk < sizes_.chunks; ++chunk) {
      const TokenChunk tokens(sizes_.length, sequence_, chunk, false);
      decay_.fill(at_, sizes_, tokens, head_);
      const std::int64_t item = value_item(sizes_, sequence_, head_, chunk);
      if (to_.states != nullptr) {
        copy_state([&](std::int64_t at, float& state) {
          to_.states[item * sizes_.state_elements() + at] = state;
        });
      }
      compute_deltas(tokens, item);
      if (to_.y != nullptr) compute_outputs(tokens, chunk);
      advance(tokens);
    }
    __syncthreads();
    if (to_.last_state == nullptr) return;
    copy_state(
        [&](std::int64_t at, float& state) { to_.last_state[of_head(sequence_) + at] = state; });
  }

 private:
  __device__ std::int64_t of_head(std::int64_t sequence) const {
    return (sequence * sizes_.value_heads + head_) * sizes_.state_elements();
  }
  __device__ bool inside(int column) const { return first_ + column < sizes_.value_size; }
  /// Calls copy(offset in the head's state, element in shared memory) for each element. Sets
  /// elements outside the state to 0.
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
  /// Computes a chunk's δ in shared memory.
  __device__ void compute_deltas(const TokenChunk& tokens, std::int64_t item) {
    const TokenRows<T> keys = keys_of(at_.qkv, sizes_, tokens, key_head_);
    const TokenRows<T> values = values_of(at_.qkv, sizes_, tokens, head_);
    product_.set_zero();
    product_.add(along_rows(keys),
                 across_depth([&](int v, int d) { return state_[d * kWidth + v]; }),
                 sizes_.key_size);
    product_.each([&](int, int i, int v, float sum) {
      const float before = decay_.carried[i] * decay_.key_factor[i] * sum;
      deltas_[i * kWidth + v] = decay_.beta[i] * (values(i, first_ + v) - before);
    });
    const float* const inverse = from_.inverses + item * kChunkScores;
    product_.set_zero();
    product_.add(along_depth([&](int i, int j) { return inverse[i * kChunkTokens + j]; }),
                 across_depth([&](int v, int j) { return deltas_[j * kWidth + v]; }), kChunkTokens);
    __syncthreads();
    product_.each([&](int, int i, int v, float sum) {
      deltas_[i * kWidth + v] = sum;
      if (to_.deltas != nullptr && i < tokens.tokens && inside(v)) {
        to_.deltas[tokens.row(i) * sizes_.values() +
                   static_cast<std::int64_t>(head_) * sizes_.value_size + first_ + v] = sum;
      }
    });
  }
  __device__ void compute_outputs(const TokenChunk& tokens, std::int64_t chunk) {
    const TokenRows<T> queries = queries_of(at_.qkv, sizes_, tokens, key_head_);
    const float* const scores =
        from_.scores + key_item(sizes_, sequence_, key_head_, chunk) * kChunkScores;
    product_.set_zero();
    product_.add(along_rows(queries),
                 across_depth([&](int v, int d) { return state_[d * kWidth + v]; }),
                 sizes_.key_size);
    product_.each(
        [&](int, int i, int, float& sum) { sum *= decay_.carried[i] * decay_.query_factor[i]; });
    product_.add(along_depth([&](int i, int j) {
                   return decay_.between(i, j, false) * scores[i * kChunkTokens + j];
                 }),
                 across_depth([&](int v, int j) { return deltas_[j * kWidth + v]; }), kChunkTokens);
    T* const y = to_.y + static_cast<std::int64_t>(head_) * sizes_.value_size + first_;
    product_.each([&](int, int i, int v, float sum) {
      if (i < tokens.tokens && inside(v)) store(y + tokens.row(i) * sizes_.values() + v, sum);
    });
  }
  __device__ void advance(const TokenChunk& tokens) {
    const TokenRows<T> keys = keys_of(at_.qkv, sizes_, tokens, key_head_);
    for (int first = 0; first < sizes_.key_size; first += kProductSide) {
      product_.set_zero();
      product_.add(across_rows(keys.from_column(first)), across_depth([&](int v, int i) {
                     return decay_.rest[i] * decay_.key_factor[i] * deltas_[i * kWidth + v];
                   }),
                   kChunkTokens);
      product_.each([&](int, int d, int v, float sum) {
        if (first + d >= sizes_.key_size) return;
        float& state = state_[(first + d) * kWidth + v];
        state = decay_.total * state + sum;
      });
    }
  }

  const DeltaOutputs<T>& to_;
  const DeltaStarts& from_;
  const DeltaTensors<T>& at_;
  const DeltaSizes& sizes_;
  DeltaDecay& decay_;
  float *state_, *deltas_;
  int head_, key_head_, first_;
  std::int64_t sequence_;
  BlockProduct<T, kWidth> product_;
};

/// Grid: sequences by value heads, tiles of their columns.
template <class T, int kWidth>
__global__ void __launch_bounds__(kProductThreads, 2)
    delta_pass_kernel(DeltaOutputs<T> to, DeltaStarts from, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ DeltaDecay decay;
  DeltaPass<T, kWidth>(to, from, at, sizes, decay).run();
}

constexpr int kStepColumns = 32;  // columns per block, one lane each
constexpr int kStepWarps = 8;     // share the rows of the state

template <class T>
struct DeltaStep {
  T* y;
  float* state;
  const std::int32_t* texts;
};

/// Returns each lane's sum over the block's warps, in each warp. All threads must call it.
__device__ inline float sum_over_warps(float value, float (&of_warp)[kStepWarps][kStepColumns]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  __syncthreads();
  of_warp[warp][lane] = value;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kStepWarps; ++i) sum += of_warp[i][lane];
  return sum;
}

/// Processes one token of each text. Grid: rows by value heads, tiles of 32 columns.
template <class T>
__global__ void delta_step_kernel(DeltaStep<T> step, DeltaTensors<T> at, DeltaSizes sizes) {
  __shared__ float of_warp[kStepWarps][kStepColumns];
  const std::int64_t n = blockIdx.x / sizes.value_heads;
  const int head = static_cast<int>(blockIdx.x) % sizes.value_heads;
  const int key_head = head / sizes.sharing();
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int column = static_cast<int>(blockIdx.y) * kStepColumns + lane;
  const bool exists = column < sizes.value_size;
  const DeltaGate gate = delta_gate(at, sizes, n, head);
  const float kept = expf(gate.exponent);
  const T* const query =
      at.qkv + n * sizes.columns + static_cast<std::int64_t>(key_head) * sizes.key_size;
  const T* const key = query + sizes.keys();
  const float* const factors = at.factors + n * 2 * sizes.key_heads + key_head;
  const float of_key = factors[sizes.key_heads];
  float* const state = step.state +
                       (static_cast<std::int64_t>(step.texts[n]) * sizes.value_heads + head) *
                           sizes.state_elements() +
                       column;
  float seen = 0;
  for (int d = warp; d < sizes.key_size && exists; d += kStepWarps)
    seen += kept * state[static_cast<std::int64_t>(d) * sizes.value_size] * load(key + d);
  seen = of_key * sum_over_warps(seen, of_warp);
  const T* const value = at.qkv + n * sizes.columns + 2 * sizes.keys() +
                         static_cast<std::int64_t>(head) * sizes.value_size + column;
  const float delta = exists ? gate.beta * (load(value) - seen) : 0.0f;
  float sum = 0;
  for (int d = warp; d < sizes.key_size && exists; d += kStepWarps) {
    float& element = state[static_cast<std::int64_t>(d) * sizes.value_size];
    element = kept * element + of_key * load(key + d) * delta;
    sum += element * load(query + d);
  }
  sum = factors[0] * sum_over_warps(sum, of_warp);
  if (warp == 0 && exists)
    store(step.y + n * sizes.values() + static_cast<std::int64_t>(head) * sizes.value_size + column,
          sum);
}

}  // namespace

void pass_delta_chunks(const DeltaPassed& to, const DeltaChunks& chunks,
                       const DeltaRuleInput& input, const DeltaSizes& sizes, const Stream& stream) {
  visit_real(input.qkv.dtype(), [&]<class T>(T) {
    const PassGrid pass(sizes, BlockProduct<T>::kBytes, stream);
    launch(stream, "delta_pass",
           pass.narrow ? delta_pass_kernel<T, kNarrow> : delta_pass_kernel<T, kProductSide>,
           pass.grid,
           DeltaOutputs<T>{optional_data<T>(to.y), optional_data<float>(to.last_state),
                           optional_data<float>(to.states), optional_data<float>(to.deltas)},
           DeltaStarts{optional_data<float>(input.first_state), chunks.scores.data<float>(),
                       chunks.inverses.data<float>()},
           DeltaTensors<T>(input, chunks.factors), sizes);
  });
}

void delta_rule_scan_forward(const Tensor& y, const Tensor& last_state, const DeltaRuleInput& input,
                             const DeltaRuleSpec& spec, const Stream& stream) {
  const DeltaSizes sizes(input.qkv, input.gates, spec);
  const DeltaChunks chunks(sizes, stream);
  prepare_delta_chunks(chunks, input, sizes, stream);
  pass_delta_chunks({y, last_state, {}, {}}, chunks, input, sizes, stream);
}

void delta_rule_scan_step(const Tensor& y, const Tensor& state, const Tensor& qkv,
                          const Tensor& gates, const Tensor& log_rate, const Tensor& step_bias,
                          const Tensor& texts, const DeltaRuleSpec& spec, const Stream& stream) {
  const std::int64_t rows = qkv.size(0);
  const DeltaRuleInput input{qkv.view({rows, 1, qkv.size(1)}),
                             gates.view({rows, 1, gates.size(1)}),
                             log_rate,
                             step_bias,
                             {},
                             {}};
  const DeltaSizes sizes(input.qkv, input.gates, spec);
  const Tensor factors = empty_workspace(rows * 2 * spec.key_heads, DType::kF32, stream);
  compute_delta_factors(factors, input, sizes, stream);
  visit_real(qkv.dtype(), [&]<class T>(T) {
    launch(stream, "delta_step", delta_step_kernel<T>,
           Grid{.x = rows * spec.value_heads,
                .y = (spec.value_size + kStepColumns - 1) / kStepColumns,
                .threads = kStepWarps * kWarp},
           DeltaStep<T>{y.data<T>(), state.data<float>(), texts.data<std::int32_t>()},
           DeltaTensors<T>(input, factors), sizes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
