// Declarations shared by the kernels of a state-space scan. A chunk's tokens are counted in the
// order of the scan. With c_i the sum of a up to token i of the chunk, u = Δ·x, and S the state
// before the chunk,
//   y_i = Σ_{j ≤ i} e^{c_i − c_j}·(C_i·B_j)·u_j + e^{c_i}·S·C_i + D·x_i,
//   S'  = e^{c_last}·S + Σ_j e^{c_last − c_j}·u_j·B_jᵀ.
// Sums for the tokens of a document that begins within the chunk start at its first token and omit
// S. The same applies to S' if the last token belongs to such a document.

#pragma once

#include "hybrid_trainer/kernels/scans.h"
#include "kernels/backend/elements.cuh"
#include "kernels/scans/token_chunk.cuh"

namespace hybrid_trainer::kernels::cuda {

struct ScanSizes {
  ScanSizes(const Tensor& tokens, const Tensor& steps, const StateSpaceSpec& spec)
      : batch(tokens.size(0)),
        length(tokens.size(1)),
        chunks(chunks_of(length)),
        columns(spec.columns()),
        heads(static_cast<int>(spec.heads)),
        head_size(static_cast<int>(spec.head_size)),
        groups(static_cast<int>(spec.groups)),
        state_size(static_cast<int>(spec.state_size)),
        step_columns(steps ? steps.size(2) : 0),
        least(spec.least_step),
        most(spec.most_step),
        reversed(spec.reversed),
        shifted(spec.shifted) {}
  std::int64_t batch, length, chunks;
  std::int64_t columns;  // number of values of a token
  int heads, head_size, groups, state_size;
  std::int64_t step_columns;
  float least, most;
  bool reversed, shifted;

  __host__ __device__ int values() const { return heads * head_size; }
  __host__ __device__ int heads_of_group() const { return heads / groups; }
  __host__ __device__ std::int64_t items() const { return batch * heads * chunks; }
  __host__ __device__ std::int64_t state_elements() const {
    return static_cast<std::int64_t>(head_size) * state_size;
  }
};

template <class T>
struct ScanTensors {
  explicit ScanTensors(const StateSpaceInput& input, const StateSpaceDecay& decay)
      : values(input.values.data<T>()),
        steps(optional_data<T>(input.steps)),
        log_rate(optional_data<float>(decay.log_rate)),
        step_bias(optional_data<float>(decay.step_bias)),
        skip(optional_data<float>(input.skip)),
        positions(optional_data<std::int32_t>(input.positions)) {}
  const T* values;
  const T* steps;  // null if there is no decay
  const float* log_rate;
  const float* step_bias;
  const float* skip;              // or null
  const std::int32_t* positions;  // or null
};

/// The item (sequence, head, chunk) that a block processes.
struct ScanItem {
  __device__ ScanItem(const ScanSizes& sizes, std::int64_t item)
      : index(item),
        chunk(item % sizes.chunks),
        head(static_cast<int>(item / sizes.chunks % sizes.heads)),
        sequence(item / sizes.chunks / sizes.heads) {}
  /// Returns the index of the scores of the head's group.
  __device__ std::int64_t group_index(const ScanSizes& sizes) const {
    return (sequence * sizes.groups + head / sizes.heads_of_group()) * sizes.chunks + chunk;
  }
  std::int64_t index, chunk;
  int head;
  std::int64_t sequence;
};

/// Step of a head at one token: Δ, the exponent a of the state's remaining share e^a, and `step`,
/// the argument of softplus.
struct StepSize {
  float delta = 1, exponent = 0, step = 0;
};

template <class T>
__device__ StepSize step_size(const ScanTensors<T>& at, const ScanSizes& sizes, std::int64_t row,
                              int head) {
  if (at.steps == nullptr) return {};
  const T* const step = at.steps + (row + 1) * sizes.step_columns - sizes.heads + head;
  StepSize size;
  size.step = load(step) + at.step_bias[head];
  size.delta = fminf(fmaxf(softplus(size.step), sizes.least), sizes.most);
  if (size.step != size.step) size.delta = size.step;  // fmaxf drops NaN
  size.exponent = decay_exponent(at.log_rate[head], size.delta);
  return size;
}

/// Decay of a head within a chunk, in shared memory; Δ is 0 beyond the last token.
struct ScanDecay : ChunkDecay {
  float delta[kChunkTokens], exponent[kChunkTokens], step[kChunkTokens];  // see StepSize

  /// Computes the decay. All threads of the block must call it.
  template <class T>
  __device__ void fill(const ScanTensors<T>& at, const ScanSizes& sizes, const TokenChunk& chunk,
                       int head) {
    const int i = static_cast<int>(threadIdx.x);
    StepSize size{.delta = 0};
    if (i < chunk.tokens) size = step_size(at, sizes, chunk.row(i), head);
    ChunkDecay::fill(chunk, at.positions, size.exponent);
    if (i < kChunkTokens) delta[i] = size.delta, exponent[i] = size.exponent, step[i] = size.step;
    __syncthreads();
  }
};

template <class T>
__device__ TokenRows<T> x_of(const T* values, const ScanSizes& sizes, const TokenChunk& chunk,
                             int head) {
  return {values, chunk, sizes.columns, static_cast<std::int64_t>(head) * sizes.head_size,
          sizes.head_size};
}
template <class T>
__device__ TokenRows<T> y_of(const T* y, const ScanSizes& sizes, const TokenChunk& chunk,
                             int head) {
  return {y, chunk, sizes.values(), static_cast<std::int64_t>(head) * sizes.head_size,
          sizes.head_size};
}
template <class T>
__device__ TokenRows<T> keys_of(const T* values, const ScanSizes& sizes, const TokenChunk& chunk,
                                int group) {
  return {values, chunk, sizes.columns,
          sizes.values() + static_cast<std::int64_t>(group) * sizes.state_size, sizes.state_size};
}
template <class T>
__device__ TokenRows<T> queries_of(const T* values, const ScanSizes& sizes, const TokenChunk& chunk,
                                   int group) {
  return {values, chunk, sizes.columns,
          sizes.values() + static_cast<std::int64_t>(sizes.groups + group) * sizes.state_size,
          sizes.state_size};
}

/// Forward results for backward, f32: scores (B·G·chunks, 64, 64) of C and B; states (B·H·chunks,
/// P, N) before each chunk; and totals (B·H·chunks), the share of this state that remains after the
/// chunk.
struct ScanStates {
  ScanStates(const ScanSizes& sizes, const Stream& stream);
  Tensor scores, states, totals;
};

/// Computes the states, and the state after the last token if last_state is defined.
void compute_scan_states(const ScanStates& to, const Tensor& last_state,
                         const StateSpaceInput& input, const StateSpaceDecay& decay,
                         const ScanSizes& sizes, const Stream& stream);
/// Computes the gradients of the states after each chunk from dy and dlast_state, and the gradient
/// of the first state if `first` is defined. `states` is shaped as in ScanStates.
void compute_state_gradients(const Tensor& states, const Tensor& first, const Tensor& dy,
                             const Tensor& dlast_state, const Tensor& totals,
                             const StateSpaceInput& input, const StateSpaceDecay& decay,
                             const ScanSizes& sizes, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cuda
