// The losses of a grid's cells. A thread computes a cell.

#include <cfloat>
#include <cmath>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/loss.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/launch.cuh"
#include "kernels/backend/reduce.cuh"
#include "kernels/backend/tensor_core.cuh"
#include "kernels/losses/loss_terms.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

/// The sum 2^(shift + log2_sum).
struct Powers {
  float shift, log2_sum;
};

/// The sum of e^x over the values seen so far, as sum · 2^shift. A product x·log2 e is exact until
/// the shift is taken from it, so that large values lose nothing.
struct RunningSum {
  float shift = -FLT_MAX / 2;  // not −infinity, which minus itself is NaN
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
  /// Over all threads of the block.
  __device__ Powers of_block() const {
    const float top = reduce_block(shift, Max{}, -FLT_MAX);
    return {top, log2f(reduce_block(sum * fast_exp2(shift - top), Sum{}, 0.0f))};
  }
};

/// How many of N columns from `column` on are in the vocabulary.
template <int N>
__device__ int in_vocabulary(std::int64_t column, std::int64_t vocabulary) {
  const std::int64_t left = vocabulary - column;
  return left >= N ? N : left > 0 ? static_cast<int>(left) : 0;
}

/// One block per row. Gradients are written where `gradient_scale` is not 0. With `kKept` the block
/// copies the row to its shared memory first, so that device memory is read once. A thread reads
/// there only what it copied itself.
template <class T, int N, bool kKept, bool kSmoothed>
__global__ void __launch_bounds__(1024)
    softmax_cross_entropy_kernel(float* losses, T* logits, const std::int32_t* targets,
                                 std::int64_t vocabulary, std::int64_t stride, float smoothing,
                                 float gradient_scale) {
  T* const row = logits + blockIdx.x * stride;
  const std::int64_t target = targets[blockIdx.x];
  const bool is_learnt = target != kNoTarget;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  float target_logit = NAN;  // stays for a target outside the vocabulary
  if (threadIdx.x == 0 && target >= 0 && target < vocabulary) target_logit = load(row + target);

  const T* from = row;
  if constexpr (kKept) {
    T* const kept = dynamic_shared<T>();
    for (std::int64_t i = threadIdx.x * N; i < stride; i += step) {
      copy_async(shared_address(kept + i), row + i, true);
    }
    commit_copies();
    wait_for_copies<0>();
    from = kept;
  }

  RunningSum running;
  float of_all = 0.0f;  // the sum of the logits
  for (std::int64_t i = threadIdx.x * N; i < vocabulary; i += step) {
    float values[N];
    load_pack(values, from + i);
    const int count = in_vocabulary<N>(i, vocabulary);
    if constexpr (kSmoothed) {
      for (int k = 0; k < N; ++k) of_all += k < count ? values[k] : 0.0f;
    }
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
    losses[blockIdx.x] = is_learnt ? (powers.log2_sum - of_target) * kLn2 : 0.0f;
  }
  if (gradient_scale == 0.0f) return;

  for (std::int64_t i = threadIdx.x * N; i < stride; i += step) {
    float values[N] = {};
    const int count = is_learnt ? in_vocabulary<N>(i, vocabulary) : 0;
    if (count > 0) {
      load_pack(values, from + i);
      for (int k = 0; k < N; ++k)
        values[k] = fast_exp2(values[k] * kLog2E - powers.shift - powers.log2_sum);
      if constexpr (kSmoothed) {
        for (int k = 0; k < N; ++k) values[k] -= smoothing / static_cast<float>(vocabulary);
      }
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
    1 << 10;  // of shared memory, for sums over the block: at most
/// Of two blocks on a multiprocessor one reads while the other computes; where two such rows fit
/// into the shared memory of most devices, blocks have half as many threads.
constexpr std::size_t kMostBytesOfTwo = 112 << 10;

/// `kept`: it copies a row to shared memory, which it does with whole packs alone.
template <class T, int N, bool kSmoothed>
auto loss_kernel(bool kept) {
  return kept ? softmax_cross_entropy_kernel<T, N, N == kPackSize<T>, kSmoothed>
              : softmax_cross_entropy_kernel<T, N, false, kSmoothed>;
}

/// N: elements of one access.
template <class T, int N>
void launch_loss(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                 const SmoothedTargets& spec, float gradient_scale, const Stream& stream) {
  const std::int64_t stride = logits.size(1), loads = stride / N;
  const auto row_bytes = static_cast<std::size_t>(stride) * sizeof(T);
  // Losses alone need each logit once.
  const bool kept = N == kPackSize<T> && gradient_scale != 0.0f &&
                    row_bytes + kLossStaticBytes <= most_shared_bytes(stream);
  const Grid grid{.x = static_cast<unsigned int>(logits.size(0)),
                  .threads = loads >= 1024  ? (row_bytes <= kMostBytesOfTwo ? 512u : 1024u)
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
  visit_real(logits.dtype(), [&](auto real) {
    using T = decltype(real);
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

constexpr int kBoxNumbers = 4, kFirstClass = 1 + kBoxNumbers;

/// The cross entropy of logits, which become its gradient times `scale` where it `writes`.
__device__ float class_loss(float* logits, std::int64_t classes, std::int64_t wanted, bool writes,
                            float scale) {
  float highest = logits[0], sum = 0;
  for (std::int64_t i = 1; i < classes; ++i) highest = fmaxf(highest, logits[i]);
  for (std::int64_t i = 0; i < classes; ++i) sum += expf(logits[i] - highest);
  const float loss = logf(sum) - (logits[wanted] - highest);
  if (!writes) return loss;
  for (std::int64_t i = 0; i < classes; ++i)
    logits[i] = (expf(logits[i] - highest) / sum - (i == wanted ? 1.0f : 0.0f)) * scale;
  return loss;
}

__device__ float object_loss(float* row, std::int64_t classes, std::int64_t wanted,
                             const float* box, const GridLossSpec& spec, float scale) {
  float loss = spec.positive_weight * softplus(-row[0]);
  if (scale != 0.0f) row[0] = -scale * spec.positive_weight / (1.0f + expf(row[0]));
  float of_box = 0;
  for (int i = 0; i < kBoxNumbers; ++i) {
    const LossAndSlope at = smooth_distance(row[1 + i] - box[i], spec.beta);
    of_box += at.loss;
    if (scale != 0.0f) row[1 + i] = at.slope * spec.box_weight * scale;
  }
  loss += spec.box_weight * of_box;
  return loss + spec.class_weight * class_loss(row + kFirstClass, classes, wanted, scale != 0.0f,
                                               scale * spec.class_weight);
}

__device__ float empty_loss(float* row, std::int64_t columns, float scale) {
  const float loss = softplus(row[0]);
  if (scale == 0.0f) return loss;
  row[0] = scale / (1.0f + expf(-row[0]));
  for (std::int64_t i = 1; i < columns; ++i) row[i] = 0.0f;
  return loss;
}

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

}  // namespace hybrid_trainer::kernels::cuda
