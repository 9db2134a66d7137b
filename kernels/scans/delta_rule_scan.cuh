// Declarations shared by the kernels of a gated delta rule's scan. Within a chunk, let c_i be the
// sum of g up to token i, L_ij = e^{c_i − c_j}, S the state before the chunk, and q_i, k_i and v_i
// the rows of queries, keys and values. Then
//   M = 1 + the lower part of β_i·⟨k_i, k_j⟩·L_ij,
//   δ = M⁻¹·(β_i·(v_i − e^{c_i}·Sᵀ·k_i)),
//   y_i = e^{c_i}·Sᵀ·q_i + Σ_{j ≤ i} L_ij·⟨q_i, k_j⟩·δ_j,
//   S' = e^{c_last}·S + Σ_j e^{c_last − c_j}·k_j·δ_jᵀ.
// Queries and keys are multiplied unnormalized; their factors, 1 over the norm, are applied later.

#pragma once

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/scans.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/launch.h"
#include "kernels/scans/token_chunk.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr float kNormEpsilon = 1e-6f;  // added to the squared norms of queries and keys

struct DeltaSizes {
  DeltaSizes(const Tensor& qkv, const Tensor& gates, const DeltaRuleSpec& spec)
      : batch(qkv.size(0)),
        length(qkv.size(1)),
        chunks(chunks_of(length)),
        columns(spec.columns()),
        gate_columns(gates.size(2)),
        key_heads(static_cast<int>(spec.key_heads)),
        value_heads(static_cast<int>(spec.value_heads)),
        key_size(static_cast<int>(spec.key_size)),
        value_size(static_cast<int>(spec.value_size)),
        query_scale(1.0f / std::sqrt(static_cast<float>(spec.key_size))) {}
  std::int64_t batch, length, chunks;
  std::int64_t columns, gate_columns;  // columns of a token in qkv and in the gates
  int key_heads, value_heads, key_size, value_size;
  float query_scale;

  __host__ __device__ int keys() const { return key_heads * key_size; }
  __host__ __device__ int values() const { return value_heads * value_size; }
  __host__ __device__ int sharing() const { return value_heads / key_heads; }
  __host__ __device__ std::int64_t rows() const { return batch * length; }
  __host__ __device__ std::int64_t items() const { return batch * value_heads * chunks; }
  __host__ __device__ std::int64_t key_items() const { return batch * key_heads * chunks; }
  __host__ __device__ std::int64_t state_elements() const {
    return static_cast<std::int64_t>(key_size) * value_size;
  }
};

template <class T>
struct DeltaTensors {
  explicit DeltaTensors(const DeltaRuleInput& input, const Tensor& of_factors = {})
      : qkv(input.qkv.data<T>()),
        gates(input.gates.data<T>()),
        log_rate(input.log_rate.data<float>()),
        step_bias(input.step_bias.data<float>()),
        positions(optional_data<std::int32_t>(input.positions)),
        factors(optional_data<float>(of_factors)) {}
  const T* qkv;
  const T* gates;
  const float* log_rate;
  const float* step_bias;
  const std::int32_t* positions;  // or null
  const float* factors;           // (B·T, 2·K): for queries, then for keys
};

/// The item (sequence, head, chunk) that a block processes. Heads are key heads or value heads.
struct DeltaItem {
  __device__ DeltaItem(const DeltaSizes& sizes, int heads, std::int64_t item)
      : chunk(item % sizes.chunks),
        head(static_cast<int>(item / sizes.chunks % heads)),
        sequence(item / sizes.chunks / heads) {}
  __device__ TokenChunk tokens(const DeltaSizes& sizes) const {
    return {sizes.length, sequence, chunk, false};
  }
  std::int64_t chunk;
  int head;
  std::int64_t sequence;
};

/// Return the index of an item of value heads (value_item) or of key heads (key_item).
__device__ inline std::int64_t value_item(const DeltaSizes& sizes, std::int64_t sequence, int head,
                                          std::int64_t chunk) {
  return (sequence * sizes.value_heads + head) * sizes.chunks + chunk;
}
__device__ inline std::int64_t key_item(const DeltaSizes& sizes, std::int64_t sequence, int head,
                                        std::int64_t chunk) {
  return (sequence * sizes.key_heads + head) * sizes.chunks + chunk;
}

/// Gate of a head for one token.
struct DeltaGate {
  float beta = 0, exponent = 0, step = 0;
};

template <class T>
__device__ DeltaGate delta_gate(const DeltaTensors<T>& at, const DeltaSizes& sizes,
                                std::int64_t row, int head) {
  const T* const gates = at.gates + (row + 1) * sizes.gate_columns - 2 * sizes.value_heads + head;
  const float step = load(gates + sizes.value_heads) + at.step_bias[head];
  return {sigmoid(load(gates)), decay_exponent(at.log_rate[head], softplus(step)), step};
}

/// Gates of a head within a chunk, in shared memory; β and the factors are 0 beyond the last token.
struct DeltaDecay : ChunkDecay {
  float beta[kChunkTokens], step[kChunkTokens], exponent[kChunkTokens];
  float query_factor[kChunkTokens], key_factor[kChunkTokens];

  /// Computes the gates. All threads of the block must call it.
  template <class T>
  __device__ void fill(const DeltaTensors<T>& at, const DeltaSizes& sizes, const TokenChunk& chunk,
                       int head) {
    const int i = static_cast<int>(threadIdx.x);
    const bool exists = i < chunk.tokens;
    DeltaGate gate;
    if (exists) gate = delta_gate(at, sizes, chunk.row(i), head);
    ChunkDecay::fill(chunk, at.positions, gate.exponent);
    if (i < kChunkTokens) {
      const float* const factors =
          at.factors + chunk.row(exists ? i : 0) * 2 * sizes.key_heads + head / sizes.sharing();
      beta[i] = gate.beta, step[i] = gate.step, exponent[i] = gate.exponent;
      query_factor[i] = exists ? factors[0] : 0.0f;
      key_factor[i] = exists ? factors[sizes.key_heads] : 0.0f;
    }
    __syncthreads();
  }
};

/// Return the rows of a chunk for a key head or a value head. `matrix` is laid out like qkv, or for
/// outputs_of (B·T, V·D_v).
template <class T>
__device__ TokenRows<T> queries_of(const T* matrix, const DeltaSizes& sizes,
                                   const TokenChunk& chunk, int key_head) {
  return {matrix, chunk, sizes.columns, static_cast<std::int64_t>(key_head) * sizes.key_size,
          sizes.key_size};
}
template <class T>
__device__ TokenRows<T> keys_of(const T* matrix, const DeltaSizes& sizes, const TokenChunk& chunk,
                                int key_head) {
  return {matrix, chunk, sizes.columns,
          sizes.keys() + static_cast<std::int64_t>(key_head) * sizes.key_size, sizes.key_size};
}
template <class T>
__device__ TokenRows<T> values_of(const T* matrix, const DeltaSizes& sizes, const TokenChunk& chunk,
                                  int head) {
  return {matrix, chunk, sizes.columns,
          2 * sizes.keys() + static_cast<std::int64_t>(head) * sizes.value_size, sizes.value_size};
}
template <class T>
__device__ TokenRows<T> outputs_of(const T* matrix, const DeltaSizes& sizes,
                                   const TokenChunk& chunk, int head) {
  return {matrix, chunk, sizes.values(), static_cast<std::int64_t>(head) * sizes.value_size,
          sizes.value_size};
}

/// Inputs of the passes over chunks, all f32: factors (B·T, 2·K); scores (2, B·K·chunks, 64, 64),
/// ⟨q_i, k_j⟩ and ⟨k_i, k_j⟩ times the factors; and inverses M⁻¹ (B·V·chunks, 64, 64).
struct DeltaChunks {
  DeltaChunks(const DeltaSizes& sizes, const Stream& stream);
  Tensor factors, scores, inverses;
};
/// Computes only the factors of queries and keys.
void compute_delta_factors(const Tensor& factors, const DeltaRuleInput& input,
                           const DeltaSizes& sizes, const Stream& stream);
void prepare_delta_chunks(const DeltaChunks& to, const DeltaRuleInput& input,
                          const DeltaSizes& sizes, const Stream& stream);

constexpr std::size_t kDeltaStaticBytes = 8192;  // more than the static shared memory of a pass

/// Grid of a pass over the chunks. The grid has sequences by value heads, and tiles of a head's
/// columns. A block keeps a tile of the state and the same columns of a chunk in shared memory.
/// Uses narrow tiles if wide tiles do not fill the device or do not fit in shared memory; both
/// produce bit-identical results. Throws Error if narrow tiles do not fit either.
struct PassGrid {
  PassGrid(const DeltaSizes& sizes, std::size_t product_bytes, const Stream& stream) {
    const std::int64_t heads = sizes.batch * sizes.value_heads;
    const std::int64_t blocks = heads * product_tiles(sizes.value_size);
    const auto bytes_of = [&](int width) {
      return product_bytes +
             static_cast<std::size_t>((sizes.key_size + kChunkTokens) * width) * sizeof(float);
    };
    const std::size_t most = max_shared_bytes(stream);
    const std::size_t room = most == 0 ? std::numeric_limits<std::size_t>::max() : most;
    narrow = sizes.value_size <= kNarrow || blocks < 2 * processors_of(stream) ||
             bytes_of(kProductSide) + kDeltaStaticBytes > room;
    const int width = narrow ? kNarrow : kProductSide;
    if (bytes_of(width) + kDeltaStaticBytes > room)
      throw Error(ExitCode::kConfig, concat("model.state_space.state_size: got ", sizes.key_size,
                                            ", but a delta-rule state of this size does not fit "
                                            "this device's shared memory; want a smaller one"));
    grid = {.x = heads,
            .y = (sizes.value_size + width - 1) / width,
            .threads = kProductThreads,
            .shared_bytes = bytes_of(width)};
  }
  Grid grid;
  bool narrow;
};

/// Outputs of a forward pass. Undefined tensors are not computed.
struct DeltaPassed {
  Tensor y, last_state;
  Tensor states;  // (B·V·chunks, D_k, D_v) f32, before each chunk
  Tensor deltas;  // (B·T, V·D_v) f32: δ
};
void pass_delta_chunks(const DeltaPassed& to, const DeltaChunks& chunks,
                       const DeltaRuleInput& input, const DeltaSizes& sizes, const Stream& stream);

/// Intermediate tensors from which a backward pass computes gradients. All are f32 and sized as in
/// DeltaPassed. states and deltas come from a forward pass, dstates is the gradient of the state
/// after each chunk, and dright is the gradient of the factor to the right of M⁻¹.
struct DeltaBackward {
  Tensor states, deltas, dstates, dright;
};

/// Computes the columns of queries and keys in dqkv.
void compute_key_gradients(const Tensor& dqkv, const DeltaBackward& passed, const Tensor& dy,
                           const DeltaChunks& chunks, const DeltaRuleInput& input,
                           const DeltaSizes& sizes, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cuda
