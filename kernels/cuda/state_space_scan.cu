// Output of a state-space scan, and its step. A chunk of a head reads 64 rows of x, its group's
// scores, C and the state before it, and writes 64 rows of y: for P 64 and N 128 in bf16 some 80 kB,
// most of it from the second cache, at 1.6 MFLOP: both take 30 to 40 ns of an H100 whole. A step
// reads and writes the state, 8·P·N bytes a head, and is bound by that: 24 heads of P 64 and N 128
// take 1.6 MB, half a microsecond.

#include "kernels/cuda/state_space_scan.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// y of a chunk of a head; grid: items, tiles of the head.
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

/// One token of each text: a warp for each channel of each head of each row.
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
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const bool narrow = sizes.head_size <= kNarrow;
    launch(stream, "scan_output",
           narrow ? scan_output_kernel<T, kNarrow> : scan_output_kernel<T, kProductSide>,
           Grid{.x = static_cast<unsigned int>(sizes.items()),
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
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const ScanStep<T> step{y.data<T>(), state.data<float>(), texts.data<std::int32_t>(), rows};
    launch(stream, "scan_step", scan_step_kernel<T>,
           grid_for(rows * sizes.values() * kWarp, kStepThreads), step,
           ScanTensors<T>(input, decay), sizes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
