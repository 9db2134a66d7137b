// A state-space scan, and its step. First computes the states between chunks, forward and backward.
// A chunk of a head with P 64 and N 128 in bf16 reads 25 kB, writes 98 kB of states, reads and
// writes them once more, and computes 1 MFLOP. The pass is memory-bound, with an estimated half
// microsecond for each chunk of 24 heads at 3 TB/s.
//
// Then computes the output. A chunk of a head reads 64 rows of x, its group's scores, C, and the
// state before it, and writes 64 rows of y. For P 64 and N 128 in bf16 these are about 80 kB,
// mostly from the L2 cache, and 1.6 MFLOP; memory and computation each take 30 to 40 ns of a whole
// H100. A step is limited by reading and writing the state, 8·P·N bytes per head: 24 such heads
// take 1.6 MB, 0.5 µs.

#include "kernels/scans/state_space_scan.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// scores[sequence, group, chunk] = C·Bᵀ of a chunk. One block for each.
template <class T>
__global__ void __launch_bounds__(kProductThreads, kProductBlocks)
    scan_scores_kernel(float* scores, ScanTensors<T> at, ScanSizes sizes) {
  const std::int64_t item = blockIdx.x;
  const int group = static_cast<int>(item / sizes.chunks % sizes.groups);
  const TokenChunk chunk(sizes.length, item / sizes.chunks / sizes.groups, item % sizes.chunks,
                         sizes.reversed);
  const TokenRows<T> keys = keys_of(at.values, sizes, chunk, group);
  const TokenRows<T> queries = queries_of(at.values, sizes, chunk, group);
  BlockProduct<T> product;
  product.set_zero();
  product.add(along_rows(queries), along_rows(keys), sizes.state_size);
  float* const to = scores + item * kChunkScores;
  product.each([&](int, int i, int j, float sum) { to[i * kChunkTokens + j] = sum; });
}

/// Computes the contribution of a chunk to the state after it: states[item] = Σ_j rest_j·u_j·B_jᵀ.
/// If kGradients, computes the contribution to the gradient of the state before it: Σ_i
/// carried_i·dy_i·C_iᵀ. Grid: items, tiles of the state.
template <bool kGradients, class T>
__global__ void __launch_bounds__(kProductThreads, kProductBlocks)
    chunk_states_kernel(float* states, float* totals, const T* dy, ScanTensors<T> at,
                        ScanSizes sizes) {
  __shared__ ScanDecay decay;
  const ScanItem item(sizes, blockIdx.x);
  const TokenChunk chunk(sizes.length, item.sequence, item.chunk, sizes.reversed);
  decay.fill(at, sizes, chunk, item.head);
  const int tiles = (sizes.state_size + kProductSide - 1) / kProductSide;
  const int row = static_cast<int>(blockIdx.y) / tiles * kProductSide;
  const int column = static_cast<int>(blockIdx.y) % tiles * kProductSide;
  const int group = item.head / sizes.heads_of_group();
  BlockProduct<T> product;
  product.set_zero();
  if constexpr (kGradients) {
    const TokenRows<T> g = y_of(dy, sizes, chunk, item.head);
    const TokenRows<T> queries = queries_of(at.values, sizes, chunk, group);
    product.add(across_depth([&](int p, int i) { return decay.carried[i] * g(i, row + p); }),
                across_rows(queries.from_column(column)), kChunkTokens);
  } else {
    const TokenRows<T> x = x_of(at.values, sizes, chunk, item.head);
    const TokenRows<T> keys = keys_of(at.values, sizes, chunk, group);
    product.add(
        across_depth([&](int p, int j) { return decay.rest[j] * decay.delta[j] * x(j, row + p); }),
        across_rows(keys.from_column(column)), kChunkTokens);
    if (blockIdx.y == 0 && threadIdx.x == 0) totals[item.index] = decay.total;
  }
  float* const to = states + item.index * sizes.state_elements();
  product.each([&](int, int p, int n, float sum) {
    if (row + p < sizes.head_size && column + n < sizes.state_size)
      to[(row + p) * sizes.state_size + column + n] = sum;
  });
}

/// Replaces the contributions of the chunks by the states between them. Each thread processes N
/// elements of a head's state, from the first chunk on if `forward`, otherwise from the last one.
template <int N>
__global__ void pass_states_kernel(float* states, const float* totals, const float* begin,
                                   float* end, ScanSizes sizes, bool forward) {
  const std::int64_t packs = sizes.state_elements() / N;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t head = thread / packs, element = thread % packs * N;
  if (head >= sizes.batch * sizes.heads) return;
  float state[N] = {};
  if (begin != nullptr) load_pack(state, begin + head * sizes.state_elements() + element);
  for (std::int64_t i = 0; i < sizes.chunks; ++i) {
    const std::int64_t item = head * sizes.chunks + (forward ? i : sizes.chunks - 1 - i);
    float* const at = states + item * sizes.state_elements() + element;
    float own[N];
    load_pack(own, static_cast<const float*>(at));
    store_pack(at, state);
    for (int j = 0; j < N; ++j) state[j] = state[j] * totals[item] + own[j];
  }
  if (end != nullptr) store_pack(end + head * sizes.state_elements() + element, state);
}

void pass_states(const Tensor& states, const Tensor& totals, const Tensor& begin, const Tensor& end,
                 const ScanSizes& sizes, bool forward, const Stream& stream) {
  const bool packed =
      packs_fit<float>(sizes.state_elements(), states.raw(), begin.raw(), end.raw());
  const std::int64_t elements = sizes.batch * sizes.heads * sizes.state_elements();
  launch(stream, "pass_states", packed ? pass_states_kernel<4> : pass_states_kernel<1>,
         grid_for(elements / (packed ? 4 : 1)), states.data<float>(), totals.data<float>(),
         optional_data<float>(begin), optional_data<float>(end), sizes, forward);
}

Grid grid_of_states(const ScanSizes& sizes, std::size_t shared_bytes) {
  return {.x = sizes.items(),
          .y = product_tiles(sizes.head_size) * product_tiles(sizes.state_size),
          .threads = kProductThreads,
          .shared_bytes = shared_bytes};
}

}  // namespace

ScanStates::ScanStates(const ScanSizes& sizes, const Stream& stream)
    : scores(empty_workspace(sizes.batch * sizes.groups * sizes.chunks * kChunkScores, DType::kF32,
                             stream)),
      states(empty_workspace(sizes.items() * sizes.state_elements(), DType::kF32, stream)),
      totals(empty_workspace(sizes.items(), DType::kF32, stream)) {}

void compute_scan_states(const ScanStates& to, const Tensor& last_state,
                         const StateSpaceInput& input, const StateSpaceDecay& decay,
                         const ScanSizes& sizes, const Stream& stream) {
  visit_real(input.values.dtype(), [&]<class T>(T) {
    const ScanTensors<T> at(input, decay);
    const std::int64_t groups = sizes.batch * sizes.groups * sizes.chunks;
    launch(stream, "scan_scores", scan_scores_kernel<T>,
           Grid{.x = groups, .threads = kProductThreads, .shared_bytes = BlockProduct<T>::kBytes},
           to.scores.data<float>(), at, sizes);
    launch(stream, "chunk_states", chunk_states_kernel<false, T>,
           grid_of_states(sizes, BlockProduct<T>::kBytes), to.states.data<float>(),
           to.totals.data<float>(), nullptr, at, sizes);
  });
  pass_states(to.states, to.totals, input.first_state, last_state, sizes, true, stream);
}

void compute_state_gradients(const Tensor& states, const Tensor& first, const Tensor& dy,
                             const Tensor& dlast_state, const Tensor& totals,
                             const StateSpaceInput& input, const StateSpaceDecay& decay,
                             const ScanSizes& sizes, const Stream& stream) {
  visit_real(input.values.dtype(), [&]<class T>(T) {
    launch(stream, "chunk_state_gradients", chunk_states_kernel<true, T>,
           grid_of_states(sizes, BlockProduct<T>::kBytes), states.data<float>(), nullptr,
           dy.data<T>(), ScanTensors<T>(input, decay), sizes);
  });
  pass_states(states, totals, dlast_state, first, sizes, false, stream);
}

namespace {

/// Computes y of a chunk of a head. Grid: items, tiles of the head.
template <class T, int kWidth>
__global__ void __launch_bounds__(kProductThreads, kProductBlocks)
    scan_output_kernel(T* y, ScanTensors<T> at, const float* scores, const float* states,
                       ScanSizes sizes) {
  __shared__ ScanDecay decay;
  const ScanItem item(sizes, blockIdx.x);
  const TokenChunk chunk(sizes.length, item.sequence, item.chunk, sizes.reversed);
  decay.fill(at, sizes, chunk, item.head);
  const int first = static_cast<int>(blockIdx.y) * kWidth;
  const int group = item.head / sizes.heads_of_group();
  const TokenRows<T> x = x_of(at.values, sizes, chunk, item.head);
  const TokenRows<T> queries = queries_of(at.values, sizes, chunk, group);
  const float* const state = states + item.index * sizes.state_elements();
  const float* const of_group = scores + item.group_index(sizes) * kChunkScores;
  BlockProduct<T, kWidth> product;
  product.set_zero();
  product.add(along_rows(queries), along_depth([&](int p, int n) {
                return first + p < sizes.head_size ? state[(first + p) * sizes.state_size + n]
                                                   : 0.0f;
              }),
              sizes.state_size);
  product.each([&](int, int i, int, float& sum) { sum *= decay.carried[i]; });
  product.add(along_depth([&](int i, int j) {
                const float left = decay.between(i, j, sizes.shifted);
                return left * of_group[i * kChunkTokens + j] * decay.delta[j];
              }),
              across_rows(x.from_column(first)), kChunkTokens);
  const float skip = at.skip == nullptr ? 0.0f : at.skip[item.head];
  T* const to = y + static_cast<std::int64_t>(item.head) * sizes.head_size + first;
  product.each([&](int, int i, int p, float sum) {
    if (i >= chunk.tokens || first + p >= sizes.head_size) return;
    if (at.skip != nullptr) sum += skip * x(i, first + p);
    store(to + chunk.row(i) * sizes.values() + p, sum);
  });
}

constexpr int kStepThreads = 128;

template <class T>
struct ScanStep {
  T* y;
  float* state;
  const std::int32_t* texts;
  std::int64_t rows;
};

/// Processes one token of each text. Uses one warp for each channel of each head of each row.
template <class T>
__global__ void scan_step_kernel(ScanStep<T> step, ScanTensors<T> at, ScanSizes sizes) {
  const std::int64_t channel =
      (static_cast<std::int64_t>(blockIdx.x) * kStepThreads + threadIdx.x) / kWarp;
  const std::int64_t n = channel / sizes.values();
  if (n >= step.rows) return;
  const int of_row = static_cast<int>(channel % sizes.values()), head = of_row / sizes.head_size;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* const row = at.values + n * sizes.columns;
  const T* const key = row + sizes.values() + head / sizes.heads_of_group() * sizes.state_size;
  const T* const query = key + sizes.groups * sizes.state_size;
  const StepSize size = step_size(at, sizes, n, head);
  const float kept = expf(size.exponent), x = load(row + of_row), added = size.delta * x;
  float* const state =
      step.state +
      (static_cast<std::int64_t>(step.texts[n]) * sizes.values() + of_row) * sizes.state_size;
  float sum = 0;
  for (int i = lane; i < sizes.state_size; i += kWarp) {
    const float before = kept * state[i], now = before + added * load(key + i);
    state[i] = now;
    sum += (sizes.shifted ? before : now) * load(query + i);
  }
  sum = reduce_warp(sum, Sum{});
  if (at.skip != nullptr) sum += at.skip[head] * x;
  if (lane == 0) store(step.y + channel, sum);
}

}  // namespace

void state_space_scan_forward(const Tensor& y, const Tensor& last_state,
                              const StateSpaceInput& input, const StateSpaceDecay& decay,
                              const StateSpaceSpec& spec, const Stream& stream) {
  const ScanSizes sizes(input.values, input.steps, spec);
  const ScanStates states(sizes, stream);
  compute_scan_states(states, last_state, input, decay, sizes, stream);
  visit_real(y.dtype(), [&]<class T>(T) {
    const bool narrow = sizes.head_size <= kNarrow;
    launch(stream, "scan_output",
           narrow ? scan_output_kernel<T, kNarrow> : scan_output_kernel<T, kProductSide>,
           Grid{.x = sizes.items(),
                .y = product_tiles(sizes.head_size),
                .threads = kProductThreads,
                .shared_bytes = BlockProduct<T>::kBytes},
           y.data<T>(), ScanTensors<T>(input, decay), states.scores.data<float>(),
           states.states.data<float>(), sizes);
  });
}

void state_space_scan_step(const Tensor& y, const Tensor& state, const Tensor& values,
                           const Tensor& steps, const Tensor& skip, const StateSpaceDecay& decay,
                           const Tensor& texts, const StateSpaceSpec& spec, const Stream& stream) {
  const std::int64_t rows = values.size(0);
  const Tensor none, tokens = values.view({rows, 1, values.size(1)});
  const Tensor of_steps = steps ? steps.view({rows, 1, steps.size(1)}) : none;
  const StateSpaceInput input{tokens, of_steps, skip, none, none};
  const ScanSizes sizes(input.values, input.steps, spec);
  visit_real(y.dtype(), [&]<class T>(T) {
    const ScanStep<T> step{y.data<T>(), state.data<float>(), texts.data<std::int32_t>(), rows};
    launch(stream, "scan_step", scan_step_kernel<T>,
           grid_for(rows * sizes.values() * kWarp, kStepThreads), step,
           ScanTensors<T>(input, decay), sizes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
