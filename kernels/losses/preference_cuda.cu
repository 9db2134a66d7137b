#include "hybrid_trainer/kernels/loss.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

#define HT_OF_PAIR __device__ inline
#include "kernels/losses/loss_terms.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr unsigned int kPairThreads = 256;

/// Raw pointers of PreferenceTensors.
struct PairPointers {
  const float *losses, *references;
  const std::int32_t* halves;
  float *pair_losses, *weights;
  double *sums, *measures;  // measures: (B, kPreferenceMeasures), of each sequence
  int length;
};

/// Sum of a half's log-probabilities and number of its targets, in each thread of the block.
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

/// One block per sequence.
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
    if (chosen.tokens == 0) break;  // of all threads
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

/// One thread for each number.
__global__ void add_measures_kernel(double* to, const double* of_sequences, int sequences) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= static_cast<int>(kPreferenceMeasures)) return;
  double sum = to[i];
  for (int b = 0; b < sequences; ++b) sum += of_sequences[b * kPreferenceMeasures + i];
  to[i] = sum;
}

/// One block per row.
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
         Grid{.x = static_cast<unsigned int>(sequences), .threads = kPairThreads}, pointers, form);
  if (!t.measures) return;
  launch(stream, "add_measures", add_measures_kernel,
         Grid{.x = 1, .threads = static_cast<unsigned int>(kWarp)}, t.measures.data<double>(),
         measures.data<double>(), static_cast<int>(sequences));
}

void scale_rows(const Tensor& x, const Tensor& factors, const Stream& stream) {
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    launch(stream, "scale_rows", scale_rows_kernel<T>,
           Grid{.x = static_cast<unsigned int>(x.size(0)), .threads = kPairThreads}, x.data<T>(),
           factors.data<float>(), x.size(1));
  });
}

}  // namespace hybrid_trainer::kernels::cuda
