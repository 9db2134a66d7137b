// Gradients of a state-space scan. Each head and chunk takes six products with the state and four
// products of 64 tokens. For P 64 and N 128 these are 9 MFLOP on 0.3 MB, mostly f32 states from the
// L2 cache: 100 ns of a whole H100 in bf16, 0.2 µs in f32.

#include "kernels/backend/reduce.cuh"
#include "kernels/scans/state_space_scan.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

template <class T>
struct ScanBackward {
  T* dvalues;    // or null
  T* dsteps;     // or null
  float* lines;  // (3, B·chunks, H): each chunk's contribution to d(skip, rate, bias)
  const T* dy;
  const float* scores;
  float* dscores;
  const float* states;
  const float* dstates;  // gradients of the states after each chunk
  const float* totals;
};

/// dscores[sequence, group, chunk] = Σ over heads of e^{c_i − c_j}·⟨dy_i, u_j⟩. One block for each.
template <class T>
__global__ void __launch_bounds__(kProductThreads, 3)
    score_gradients_kernel(ScanBackward<T> to, ScanTensors<T> at, ScanSizes sizes) {
  __shared__ ScanDecay decay;
  const std::int64_t item = blockIdx.x, sequence = item / sizes.chunks / sizes.groups;
  const int group = static_cast<int>(item / sizes.chunks % sizes.groups);
  const TokenChunk chunk(sizes.length, sequence, item % sizes.chunks, sizes.reversed);
  BlockProduct<T> product;
  float sums[BlockProduct<T>::kSums] = {};
  for (int h = 0; h < sizes.heads_of_group(); ++h) {
    const int head = group * sizes.heads_of_group() + h;
    decay.fill(at, sizes, chunk, head);
    product.set_zero();
    product.add(along_rows(y_of(to.dy, sizes, chunk, head)),
                along_rows(x_of(at.values, sizes, chunk, head)), sizes.head_size);
    product.each([&](int s, int i, int j, float sum) {
      sums[s] += sum * decay.between(i, j, sizes.shifted) * decay.delta[j];
    });
  }
  float* const of_item = to.dscores + item * kChunkScores;
  product.each([&](int s, int i, int j, float) { of_item[i * kChunkTokens + j] = sums[s]; });
}

/// Computes dC in the second half of the tiles, dB in the first. Grid: items of a chunk and group;
/// tiles of N for dB, then for dC.
template <class T>
__global__ void __launch_bounds__(kProductThreads, kProductBlocks)
    scan_key_gradients_kernel(ScanBackward<T> to, ScanTensors<T> at, ScanSizes sizes) {
  __shared__ ScanDecay decay;
  const std::int64_t item = blockIdx.x, sequence = item / sizes.chunks / sizes.groups;
  const std::int64_t of_sequence = item % sizes.chunks;
  const int group = static_cast<int>(item / sizes.chunks % sizes.groups);
  const TokenChunk chunk(sizes.length, sequence, of_sequence, sizes.reversed);
  const int tiles = static_cast<int>(gridDim.y) / 2, tile = static_cast<int>(blockIdx.y) % tiles;
  const bool queries = static_cast<int>(blockIdx.y) >= tiles;
  const int first = tile * kProductSide;
  const auto inside = [&](int n) { return first + n < sizes.state_size; };
  BlockProduct<T> product;
  product.set_zero();
  for (int h = 0; h < sizes.heads_of_group(); ++h) {
    const int head = group * sizes.heads_of_group() + h;
    const std::int64_t of_head = (sequence * sizes.heads + head) * sizes.chunks + of_sequence;
    const float* const state =
        (queries ? to.states : to.dstates) + of_head * sizes.state_elements() + first;
    const TokenRows<T> rows =
        queries ? y_of(to.dy, sizes, chunk, head) : x_of(at.values, sizes, chunk, head);
    decay.fill(at, sizes, chunk, head);
    product.add(along_depth([&](int i, int p) {
                  const float left = queries ? decay.carried[i] : decay.rest[i] * decay.delta[i];
                  return left * rows(i, p);
                }),
                across_depth([&](int n, int p) {
                  return inside(n) ? state[p * sizes.state_size + n] : 0.0f;
                }),
                sizes.head_size);
  }
  const float* const dscores = to.dscores + item * kChunkScores;
  const TokenRows<T> keys = keys_of(at.values, sizes, chunk, group);
  const TokenRows<T> of_queries = queries_of(at.values, sizes, chunk, group);
  if (queries) {
    product.add(along_depth([&](int i, int j) { return dscores[i * kChunkTokens + j]; }),
                across_rows(keys.from_column(first)), kChunkTokens);
  } else {
    product.add(across_depth([&](int j, int i) { return dscores[i * kChunkTokens + j]; }),
                across_rows(of_queries.from_column(first)), kChunkTokens);
  }
  const std::int64_t column =
      sizes.values() + (queries ? sizes.groups + group : group) * sizes.state_size + first;
  product.each([&](int, int i, int n, float sum) {
    if (i < chunk.tokens && inside(n))
      store(to.dvalues + chunk.row(i) * sizes.columns + column + n, sum);
  });
}

struct HeadParts : ExponentParts {
  float x_du[kChunkTokens];  // ⟨x_t, du_t⟩
  float x_dy[kChunkTokens];  // ⟨x_t, dy_t⟩
};

/// Computes dx and the gradients of the steps. One block per chunk of a head.
template <class T, int kWidth>
class ScanHeadGradients {
 public:
  __device__ ScanHeadGradients(const ScanBackward<T>& to, const ScanTensors<T>& at,
                               const ScanSizes& sizes, ScanDecay& decay, const ScanItem& item)
      : to_(to),
        at_(at),
        sizes_(sizes),
        decay_(decay),
        parts_(*reinterpret_cast<HeadParts*>(dynamic_shared<unsigned char>() +
                                             BlockProduct<T>::kBytes)),
        item_(item),
        chunk_(sizes.length, item.sequence, item.chunk, sizes.reversed),
        group_(item.head / sizes.heads_of_group()) {}

  __device__ void run() {
    decay_.fill(at_, sizes_, chunk_, item_.head);
    for (int i = static_cast<int>(threadIdx.x); i < kChunkTokens; i += kProductThreads)
      parts_.in[i] = parts_.out[i] = parts_.x_du[i] = 0;
    for (int first = 0; first < sizes_.head_size; first += kWidth) {
      compute_dx(first);
      if (at_.steps != nullptr) add_in(first);
    }
    compute_x_dy();
    if (at_.steps != nullptr) compute_between();
    finish();
  }

 private:
  __device__ const float* scores() const {
    return to_.scores + item_.group_index(sizes_) * kChunkScores;
  }
  /// Computes du for P columns starting with `first`, and the quantities that depend on it.
  __device__ void compute_dx(int first) {
    const TokenRows<T> x = x_of(at_.values, sizes_, chunk_, item_.head);
    const TokenRows<T> dy = y_of(to_.dy, sizes_, chunk_, item_.head);
    const TokenRows<T> keys = keys_of(at_.values, sizes_, chunk_, group_);
    const float* const dstate = to_.dstates + item_.index * sizes_.state_elements();
    const float* const of_group = scores();
    product_.set_zero();
    product_.add(along_rows(keys), along_depth([&](int p, int n) {
                   return first + p < sizes_.head_size ? dstate[(first + p) * sizes_.state_size + n]
                                                       : 0.0f;
                 }),
                 sizes_.state_size);
    product_.each([&](int, int j, int, float& sum) { sum *= decay_.rest[j]; });
    product_.add_row_sums(parts_.out, [&](int j, int p, float sum) {
      return decay_.delta[j] * x(j, first + p) * sum;
    });
    product_.add(across_depth([&](int j, int i) {
                   return decay_.between(i, j, sizes_.shifted) * of_group[i * kChunkTokens + j];
                 }),
                 across_rows(dy.from_column(first)), kChunkTokens);
    product_.add_row_sums(parts_.x_du,
                          [&](int j, int p, float sum) { return x(j, first + p) * sum; });
    if (to_.dvalues == nullptr) return;
    const float skip = at_.skip == nullptr ? 0.0f : at_.skip[item_.head];
    T* const dx = to_.dvalues + static_cast<std::int64_t>(item_.head) * sizes_.head_size + first;
    product_.each([&](int, int j, int p, float sum) {
      if (j >= chunk_.tokens || first + p >= sizes_.head_size) return;
      sum *= decay_.delta[j];
      if (at_.skip != nullptr) sum += skip * dy(j, first + p);
      store(dx + chunk_.row(j) * sizes_.columns + p, sum);
    });
  }
  __device__ void compute_x_dy() {
    const TokenRows<T> x = x_of(at_.values, sizes_, chunk_, item_.head);
    const TokenRows<T> dy = y_of(to_.dy, sizes_, chunk_, item_.head);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int i = static_cast<int>(threadIdx.x) / kWarp; i < kChunkTokens;
         i += kProductThreads / kWarp) {
      float sum = 0;
      for (int p = lane; p < sizes_.head_size; p += kWarp) sum += x(i, p) * dy(i, p);
      sum = reduce_warp(sum, Sum{});
      if (lane == 0) parts_.x_dy[i] = sum;
    }
  }
  __device__ void add_in(int first) {
    const TokenRows<T> dy = y_of(to_.dy, sizes_, chunk_, item_.head);
    const TokenRows<T> queries = queries_of(at_.values, sizes_, chunk_, group_);
    const float* const state = to_.states + item_.index * sizes_.state_elements();
    product_.set_zero();
    product_.add(along_rows(queries), along_depth([&](int p, int n) {
                   return first + p < sizes_.head_size ? state[(first + p) * sizes_.state_size + n]
                                                       : 0.0f;
                 }),
                 sizes_.state_size);
    product_.add_row_sums(parts_.in, [&](int i, int p, float sum) {
      return decay_.carried[i] * dy(i, first + p) * sum;
    });
  }
  __device__ void compute_between() {
    BlockProduct<T> product;
    product.set_zero();
    product.add(along_rows(y_of(to_.dy, sizes_, chunk_, item_.head)),
                along_rows(x_of(at_.values, sizes_, chunk_, item_.head)), sizes_.head_size);
    const float* const of_group = scores();
    product.each([&](int, int i, int j, float sum) {
      parts_.between[i][j] = sum * decay_.between(i, j, sizes_.shifted) * decay_.delta[j] *
                             of_group[i * kChunkTokens + j];
    });
  }
  /// Returns the term of the contribution of the state before the chunk to the state after it.
  __device__ float whole() const {
    const std::int64_t elements = sizes_.state_elements(), first = item_.index * elements;
    return decay_.total * dot_states(to_.states + first, to_.dstates + first, elements);
  }
  __device__ void finish() {
    const int t = static_cast<int>(threadIdx.x);
    const bool exists = t < chunk_.tokens;
    float of_rate = 0, of_bias = 0;
    if (at_.steps != nullptr) {
      const float da = parts_.sum(whole());
      if (exists) {
        const float step = decay_.step[t], plain = softplus(step), slope = sigmoid(step);
        const bool within = plain >= sizes_.least && plain <= sizes_.most;
        of_rate = decay_.exponent[t] * da;
        // The order of the factors ensures that a large rate times a slope of 0 is 0.
        const float of_step = decay_rate(at_.log_rate[item_.head]) * slope * da;
        of_bias = within || step != step ? of_step + parts_.x_du[t] * slope : 0.0f;
        const std::int64_t last = (chunk_.row(t) + 1) * sizes_.step_columns;
        if (to_.dsteps != nullptr) store(to_.dsteps + last - sizes_.heads + item_.head, of_bias);
      }
    }
    __syncthreads();
    const std::int64_t lines = sizes_.batch * sizes_.chunks * sizes_.heads;
    float* const line =
        to_.lines + (item_.sequence * sizes_.chunks + item_.chunk) * sizes_.heads + item_.head;
    const float sums[3] = {exists ? parts_.x_dy[t] : 0.0f, of_rate, of_bias};
    for (int i = 0; i < 3; ++i) {
      const float sum = reduce_block(sums[i], Sum{}, 0.0f);
      if (t == 0) line[i * lines] = sum;
    }
  }

  const ScanBackward<T>& to_;
  const ScanTensors<T>& at_;
  const ScanSizes& sizes_;
  ScanDecay& decay_;
  HeadParts& parts_;
  const ScanItem& item_;
  TokenChunk chunk_;
  int group_;
  BlockProduct<T, kWidth> product_;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kProductThreads, 2)
    scan_head_gradients_kernel(ScanBackward<T> to, ScanTensors<T> at, ScanSizes sizes) {
  __shared__ ScanDecay decay;
  const ScanItem item(sizes, blockIdx.x);
  ScanHeadGradients<T, kWidth>(to, at, sizes, decay, item).run();
}

template <class T>
void launch_gradients(const ScanBackward<T>& to, const ScanTensors<T>& at, const ScanSizes& sizes,
                      const Stream& stream) {
  Grid grid{.x = sizes.items(),
            .threads = kProductThreads,
            .shared_bytes = BlockProduct<T>::kBytes + sizeof(HeadParts)};
  launch(stream, "scan_head_gradients",
         sizes.head_size <= kNarrow ? scan_head_gradients_kernel<T, kNarrow>
                                    : scan_head_gradients_kernel<T, kProductSide>,
         grid, to, at, sizes);
  if (to.dvalues == nullptr) return;
  grid.x = sizes.batch * sizes.groups * sizes.chunks;
  grid.shared_bytes = BlockProduct<T>::kBytes;
  launch(stream, "score_gradients", score_gradients_kernel<T>, grid, to, at, sizes);
  grid.y = 2 * product_tiles(sizes.state_size);
  launch(stream, "scan_key_gradients", scan_key_gradients_kernel<T>, grid, to, at, sizes);
}

/// Sums the lines of all chunks to the gradients of skip, rate and bias.
void sum_head_lines(const StateSpaceGradients& to, const float* lines, const ScanSizes& sizes,
                    const Stream& stream) {
  const std::int64_t rows = sizes.batch * sizes.chunks;
  const Tensor* const sums[] = {&to.skip, &to.log_rate, &to.step_bias};
  for (int i = 0; i < 3; ++i) {
    if (!sums[i]->defined()) continue;
    column_sums<float>(sums[i]->data<float>(), lines + i * rows * sizes.heads, rows, sizes.heads,
                       to.mode == GradientMode::kAccumulate, stream);
  }
}

}  // namespace

void state_space_scan_backward(const StateSpaceGradients& gradients, const Tensor& dy,
                               const Tensor& dlast_state, const StateSpaceInput& input,
                               const StateSpaceDecay& decay, const StateSpaceSpec& spec,
                               const Stream& stream) {
  const ScanSizes sizes(input.values, input.steps, spec);
  const ScanStates states(sizes, stream);
  const Tensor dstates = empty_workspace(states.states.elements(), DType::kF32, stream);
  const Tensor dscores = empty_workspace(states.scores.elements(), DType::kF32, stream);
  const Tensor lines = empty_workspace(3 * sizes.items(), DType::kF32, stream);
  compute_scan_states(states, {}, input, decay, sizes, stream);
  compute_state_gradients(dstates, gradients.first_state, dy, dlast_state, states.totals, input,
                          decay, sizes, stream);
  visit_real(dy.dtype(), [&]<class T>(T) {
    launch_gradients<T>({.dvalues = optional_data<T>(gradients.values),
                         .dsteps = optional_data<T>(gradients.steps),
                         .lines = lines.data<float>(),
                         .dy = dy.data<T>(),
                         .scores = states.scores.data<float>(),
                         .dscores = dscores.data<float>(),
                         .states = states.states.data<float>(),
                         .dstates = dstates.data<float>(),
                         .totals = states.totals.data<float>()},
                        ScanTensors<T>(input, decay), sizes, stream);
  });
  sum_head_lines(gradients, lines.data<float>(), sizes, stream);
}

}  // namespace hybrid_trainer::kernels::cuda
