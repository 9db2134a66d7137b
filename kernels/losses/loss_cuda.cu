#include <cfloat>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/loss.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/launch.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/backend/tensor_core.cuh"
#include "kernels/losses/loss_terms.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// A sum represented as 2^(shift + log2_sum).
struct Powers {
  float shift, log2_sum;
};

/// Running sum of e^x, as sum · 2^shift, so that large values lose no precision.
struct RunningSum {
  float shift = -FLT_MAX / 2;  // not −∞, since −∞ minus itself is NaN
  float sum = 0;

  template <int N>
  __device__ void add(const float (&values)[N]) {
    float top = values[0];
    for (int k = 1; k < N; ++k) top = fmaxf(top, values[k]);
    const float next = fmaxf(shift, top * kLog2E);
    sum *= fast_exp2(shift - next);
    for (int k = 0; k < N; ++k) sum += fast_exp2(values[k] * kLog2E - next);
    shift = next;
  }
  /// Combines the running sums of all threads of the block.
  __device__ Powers of_block() const {
    const float top = reduce_block(shift, Max{}, -FLT_MAX);
    return {top, log2f(reduce_block(sum * fast_exp2(shift - top), Sum{}, 0.0f))};
  }
};

/// Returns the number of columns in [column, column + N) that are in the vocabulary.
template <int N>
__device__ int in_vocabulary(std::int64_t column, std::int64_t vocabulary) {
  const std::int64_t left = vocabulary - column;
  return left >= N ? N : left > 0 ? static_cast<int>(left) : 0;
}

/// One block per row. If `kKept`, copies the row to shared memory, to read device memory once.
template <class T, int N, bool kKept, bool kSmoothed>
__global__ void __launch_bounds__(1024)
    softmax_cross_entropy_kernel(float* losses, T* logits, const std::int32_t* targets,
                                 std::int64_t vocabulary, std::int64_t stride, float smoothing,
                                 float gradient_scale) {
  T* const row = logits + blockIdx.x * stride;
  const std::int64_t target = targets[blockIdx.x];
  const bool has_target = target != kNoTarget;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  float target_logit = NAN;  // remains for a target outside the vocabulary
  if (threadIdx.x == 0 && target >= 0 && target < vocabulary) target_logit = load(row + target);

  const T* from = row;
  if constexpr (kKept) {
    T* const kept = dynamic_shared<T>();
    for (std::int64_t i = threadIdx.x * N; i < stride; i += step)
      copy_async(shared_address(kept + i), row + i, true);
    commit_copies();
    wait_for_copies<0>();
    from = kept;
  }

  RunningSum running;
  float of_all = 0.0f;  // maximum of shared memory for sums over the block
  for (std::int64_t i = threadIdx.x * N; i < vocabulary; i += step) {
    float values[N];
    load_pack(values, from + i);
    const int count = in_vocabulary<N>(i, vocabulary);
    if constexpr (kSmoothed)
      for (int k = 0; k < N; ++k) of_all += k < count ? values[k] : 0.0f;
    for (int k = 0; k < N; ++k) values[k] = k < count ? values[k] : -FLT_MAX;
    running.add(values);
  }
  const Powers powers = running.of_block();
  if constexpr (kSmoothed) {
    of_all = reduce_block(of_all, Sum{}, 0.0f) / static_cast<float>(vocabulary);
    target_logit = (1.0f - smoothing) * target_logit + smoothing * of_all;
  }
  if (threadIdx.x == 0) {
    const float of_target = target_logit * kLog2E - powers.shift;
    losses[blockIdx.x] = has_target ? (powers.log2_sum - of_target) * kLn2 : 0.0f;
  }
  if (gradient_scale == 0.0f) return;

  for (std::int64_t i = threadIdx.x * N; i < stride; i += step) {
    float values[N] = {};
    const int count = has_target ? in_vocabulary<N>(i, vocabulary) : 0;
    if (count > 0) {
      load_pack(values, from + i);
      for (int k = 0; k < N; ++k)
        values[k] = fast_exp2(values[k] * kLog2E - powers.shift - powers.log2_sum);
      if constexpr (kSmoothed)
        for (int k = 0; k < N; ++k) values[k] -= smoothing / static_cast<float>(vocabulary);
      if (target >= i && target < i + N) {
        const float weight = kSmoothed ? 1.0f - smoothing : 1.0f;
        for (int k = 0; k < N; ++k) values[k] -= i + k == target ? weight : 0.0f;
      }
      for (int k = 0; k < N; ++k) values[k] = k < count ? values[k] * gradient_scale : 0.0f;
    }
    store_pack(row + i, values);
  }
}

constexpr std::size_t kLossStaticBytes =
    1 << 10;  // maximum bytes of shared memory for sums over the block
/// Two blocks on a multiprocessor overlap reading and computing. If two rows of this size fit in
/// the shared memory of most devices, blocks have half the threads.
constexpr std::size_t kMaxBytesOfTwo = 112 << 10;

/// `kept` is whether a row is copied to shared memory, which requires whole packs.
template <class T, int N, bool kSmoothed>
auto loss_kernel(bool kept) {
  return kept ? softmax_cross_entropy_kernel<T, N, N == kPackSize<T>, kSmoothed>
              : softmax_cross_entropy_kernel<T, N, false, kSmoothed>;
}

template <class T, int N>
void launch_loss(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                 const SmoothedTargets& spec, float gradient_scale, const Stream& stream) {
  const std::int64_t stride = logits.size(1), loads = stride / N;
  const auto row_bytes = static_cast<std::size_t>(stride) * sizeof(T);
  // Losses without gradients need each logit only once.
  const bool kept = N == kPackSize<T> && gradient_scale != 0.0f &&
                    row_bytes + kLossStaticBytes <= max_shared_bytes(stream);
  const Grid grid{.x = logits.size(0),
                  .threads = loads >= 1024  ? (row_bytes <= kMaxBytesOfTwo ? 512u : 1024u)
                             : loads >= 256 ? 256u
                                            : static_cast<unsigned int>(kWarp),
                  .shared_bytes = kept ? row_bytes : 0};
  launch(stream, "softmax_cross_entropy",
         spec.smoothing != 0 ? loss_kernel<T, N, true>(kept) : loss_kernel<T, N, false>(kept), grid,
         losses.data<float>(), logits.data<T>(), targets.data<std::int32_t>(), spec.vocabulary,
         stride, spec.smoothing, gradient_scale);
}

}  // namespace

void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream) {
  visit_real(logits.dtype(), [&]<class T>(T) {
    const bool packed = packs_fit<T>(logits.size(1), logits.raw());
    const auto start = packed ? launch_loss<T, kPackSize<T>> : launch_loss<T, 1>;
    start(losses, logits, targets, spec, gradient_scale, stream);
  });
}

namespace {

struct RegressionLoss {
  float *losses, *x;
  const float* targets;
  bool squares;
  float delta, gradient_scale;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N], wanted[N], of_each[N];
    load_pack(values, x + i);
    load_pack(wanted, targets + i);
    for (int k = 0; k < N; ++k) {
      const float d = values[k] - wanted[k];
      const LossAndSlope at = squares ? squared_distance(d) : huber_distance(d, delta);
      of_each[k] = at.loss;
      values[k] = at.slope * gradient_scale;
    }
    store_pack(losses + i, of_each);
    if (gradient_scale != 0.0f) store_pack(x + i, values);
  }
};

}  // namespace

void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream) {
  const RegressionLoss body{losses.data<float>(),           x.data<float>(), targets.data<float>(),
                            distance == Distance::kSquared, delta,           gradient_scale};
  for_packs<kPackSize<float>>(stream, "regression_loss", x.elements(), body, body.losses, body.x,
                              body.targets);
}

namespace {

__global__ void grid_loss_kernel(float* losses, float* x, const std::int32_t* classes,
                                 const float* boxes, std::int64_t cells, std::int64_t columns,
                                 GridLossSpec spec, float gradient_scale) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= cells) return;
  float* const row = x + n * columns;
  const std::int64_t wanted = classes[n], count = columns - kFirstClass;
  if (wanted == kNoTarget) {
    losses[n] = empty_loss(row, columns, gradient_scale);
  } else if (wanted < 0 || wanted >= count) {
    losses[n] = NAN;
  } else {
    losses[n] = object_loss(row, count, wanted, boxes + n * kBoxNumbers, spec, gradient_scale);
  }
}

}  // namespace

void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream) {
  launch(stream, "grid_loss", grid_loss_kernel, grid_for(x.size(0)), losses.data<float>(),
         x.data<float>(), classes.data<std::int32_t>(), boxes.data<float>(), x.size(0), x.size(1),
         spec, gradient_scale);
}

namespace {

constexpr unsigned int kPairThreads = 256;

struct PairPointers {
  const float *losses, *references;
  const std::int32_t* halves;
  float *pair_losses, *weights;
  double *sums, *measures;  // measures: (B, kPreferenceMeasures), by sequence
  int length;
};

/// Returns the log-probability sum, number of targets and reference of text `half`. All threads get
/// the same result.
__device__ PairHalf half_of(const PairPointers& of, std::int64_t at, int half) {
  double sum = 0, tokens = 0;
  for (int t = static_cast<int>(threadIdx.x); t < of.length; t += static_cast<int>(blockDim.x)) {
    if (of.halves[at + t] != half) continue;
    sum -= of.losses[at + t];
    tokens += 1;
  }
  sum = reduce_block(sum, Sum{}, 0.0);
  tokens = reduce_block(tokens, Sum{}, 0.0);
  return {sum, tokens, half < of.length ? of.references[at + half] : 0.0f};
}

__global__ void __launch_bounds__(kPairThreads)
    preference_loss_kernel(PairPointers of, PreferenceForm form) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * of.length;
  for (int t = static_cast<int>(threadIdx.x); t < of.length; t += static_cast<int>(blockDim.x)) {
    of.pair_losses[at + t] = 0;
    of.weights[at + t] = 0;
    of.sums[at + t] = 0;
  }
  __syncthreads();
  double measures[kPreferenceMeasures] = {};
  for (int pair = 0; 2 * pair + 1 < of.length; ++pair) {
    const PairHalf chosen = half_of(of, at, 2 * pair);
    if (chosen.tokens == 0) break;  // the same in all threads
    const PairHalf rejected = half_of(of, at, 2 * pair + 1);
    const PairOutcome outcome = pair_outcome(form, chosen, rejected);
    for (int t = static_cast<int>(threadIdx.x); t < of.length; t += static_cast<int>(blockDim.x)) {
      if (of.halves[at + t] == 2 * pair)
        of.weights[at + t] = static_cast<float>(outcome.chosen_weight);
      if (of.halves[at + t] == 2 * pair + 1)
        of.weights[at + t] = static_cast<float>(outcome.rejected_weight);
    }
    if (threadIdx.x == 0) {
      of.sums[at + 2 * pair] = chosen.sum;
      of.sums[at + 2 * pair + 1] = rejected.sum;
      of.pair_losses[at + pair] = static_cast<float>(outcome.loss);
    }
    measures[0] += outcome.chosen_reward;
    measures[1] += outcome.rejected_reward;
    measures[2] += outcome.chosen_reward > outcome.rejected_reward ? 1 : 0;
    measures[3] += 1;
  }
  if (threadIdx.x != 0) return;
  for (int i = 0; i < static_cast<int>(kPreferenceMeasures); ++i)
    of.measures[blockIdx.x * kPreferenceMeasures + i] = measures[i];
}

__global__ void add_measures_kernel(double* to, const double* of_sequences, int sequences) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= static_cast<int>(kPreferenceMeasures)) return;
  double sum = to[i];
  for (int b = 0; b < sequences; ++b) sum += of_sequences[b * kPreferenceMeasures + i];
  to[i] = sum;
}

template <class T>
__global__ void __launch_bounds__(kPairThreads)
    scale_rows_kernel(T* x, const float* factors, std::int64_t columns) {
  T* const row = x + blockIdx.x * columns;
  const float factor = factors[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x)
    store(row + i, load(row + i) * factor);
}

}  // namespace

void preference_loss(const PreferenceTensors& t, const PreferenceForm& form, const Stream& stream) {
  const std::int64_t sequences = t.halves.size(0);
  const Tensor measures = empty_workspace(sequences * kPreferenceMeasures, DType::kF64, stream);
  const PairPointers pointers{t.losses.data<float>(),        t.references.data<float>(),
                              t.halves.data<std::int32_t>(), t.pair_losses.data<float>(),
                              t.weights.data<float>(),       t.sums.data<double>(),
                              measures.data<double>(),       static_cast<int>(t.halves.size(1))};
  launch(stream, "preference_loss", preference_loss_kernel,
         Grid{.x = sequences, .threads = kPairThreads}, pointers, form);
  if (!t.measures) return;
  launch(stream, "add_measures", add_measures_kernel, Grid{.x = 1, .threads = kWarp},
         t.measures.data<double>(), measures.data<double>(), static_cast<int>(sequences));
}

void scale_rows(const Tensor& x, const Tensor& factors, const Stream& stream) {
  visit_real(x.dtype(), [&]<class T>(T) {
    launch(stream, "scale_rows", scale_rows_kernel<T>,
           Grid{.x = x.size(0), .threads = kPairThreads}, x.data<T>(), factors.data<float>(),
           x.size(1));
  });
}

}  // namespace hybrid_trainer::kernels::cuda
