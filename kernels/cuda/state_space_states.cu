// States between the chunks of a state-space scan, forward and backward. A chunk of a head reads 64
// rows of x and B and writes P·N floats, which the pass over chunks reads and writes once more: for P
// 64 and N 128 in bf16, 25 kB and 98 kB at 1 MFLOP. So the pass is bound by memory, an estimated half
// of a microsecond for each chunk of 24 heads at 3 TB/s, and the products by their operands' reads.

#include "kernels/cuda/state_space_scan.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

/// scores[sequence, group, chunk] = C·Bᵀ of a chunk: a block each.
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

/// What a chunk adds to the state behind it: states[item] = Σ_j rest_j·u_j·B_jᵀ. Of gradients, to
/// that before it: Σ_i carried_i·dy_i·C_iᵀ. Grid: items, tiles of the state.
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

/// From what each chunk adds to the states between them: a thread for N elements of a head's state.
/// Forward from the first chunk, else from the last one.
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

float* optional(const Tensor& tensor) { return tensor ? tensor.data<float>() : nullptr; }

void pass_states(const Tensor& states, const Tensor& totals, const Tensor& begin, const Tensor& end,
                 const ScanSizes& sizes, bool forward, const Stream& stream) {
  const bool packed =
      packs_fit<float>(sizes.state_elements(), states.raw(), begin.raw(), end.raw());
  const std::int64_t elements = sizes.batch * sizes.heads * sizes.state_elements();
  launch(stream, "pass_states", packed ? pass_states_kernel<4> : pass_states_kernel<1>,
         grid_for(elements / (packed ? 4 : 1)), states.data<float>(), totals.data<float>(),
         optional(begin), optional(end), sizes, forward);
}

Grid grid_of_states(const ScanSizes& sizes, std::size_t shared_bytes) {
  return {.x = static_cast<unsigned int>(sizes.items()),
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
  visit_real(input.values.dtype(), [&](auto real) {
    using T = decltype(real);
    const ScanTensors<T> at(input, decay);
    const std::int64_t groups = sizes.batch * sizes.groups * sizes.chunks;
    launch(stream, "scan_scores", scan_scores_kernel<T>,
           Grid{.x = static_cast<unsigned int>(groups),
                .threads = kProductThreads,
                .shared_bytes = BlockProduct<T>::kBytes},
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
  visit_real(input.values.dtype(), [&](auto real) {
    using T = decltype(real);
    launch(stream, "chunk_state_gradients", chunk_states_kernel<true, T>,
           grid_of_states(sizes, BlockProduct<T>::kBytes), states.data<float>(), nullptr,
           dy.data<T>(), ScanTensors<T>(input, decay), sizes);
  });
  pass_states(states, totals, dlast_state, first, sizes, false, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
