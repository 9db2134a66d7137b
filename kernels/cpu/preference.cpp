#include "hybrid_trainer/kernels/preference.h"

#include <algorithm>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/preference_pair.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

/// What preference_loss reads and writes of one sequence.
struct PairsOfSequence {
  const float *losses, *references;
  const std::int32_t* halves;
  float *pair_losses, *weights;
  double* sums;
  std::int64_t length;
};

PairsOfSequence pairs_in(const PreferenceTensors& t, std::int64_t sequence) {
  const std::int64_t length = t.halves.size(1), at = sequence * length;
  return {t.losses.data<float>() + at,
          t.references.data<float>() + at,
          t.halves.data<std::int32_t>() + at,
          t.pair_losses.data<float>() + at,
          t.weights.data<float>() + at,
          t.sums.data<double>() + at,
          length};
}

/// `measures`: null, or what the pairs are added to.
void judge_pairs(const PairsOfSequence& of, const PreferenceForm& form, double* measures) {
  std::vector<double> tokens(static_cast<std::size_t>(of.length));
  std::vector<double> weight_of_half(tokens.size());
  std::fill_n(of.sums, of.length, 0.0);
  std::fill_n(of.pair_losses, of.length, 0.0f);
  for (std::int64_t t = 0; t < of.length; ++t) {
    if (of.halves[t] < 0) continue;
    of.sums[of.halves[t]] -= of.losses[t];
    tokens[static_cast<std::size_t>(of.halves[t])] += 1;
  }
  for (std::int64_t i = 0; 2 * i + 1 < of.length; ++i) {
    const auto c = static_cast<std::size_t>(2 * i), r = c + 1;
    if (tokens[c] == 0) break;
    const PairOutcome pair = pair_outcome(form, {of.sums[c], tokens[c], of.references[c]},
                                          {of.sums[r], tokens[r], of.references[r]});
    of.pair_losses[i] = static_cast<float>(pair.loss);
    weight_of_half[c] = pair.chosen_weight;
    weight_of_half[r] = pair.rejected_weight;
    if (measures == nullptr) continue;
    measures[0] += pair.chosen_reward;
    measures[1] += pair.rejected_reward;
    measures[2] += pair.chosen_reward > pair.rejected_reward ? 1 : 0;
    measures[3] += 1;
  }
  for (std::int64_t t = 0; t < of.length; ++t) {
    of.weights[t] =
        of.halves[t] < 0
            ? 0.0f
            : static_cast<float>(weight_of_half[static_cast<std::size_t>(of.halves[t])]);
  }
}

}  // namespace

void preference_loss(const PreferenceTensors& tensors, const PreferenceForm& form,
                     const Stream& stream) {
  if (simulated(stream)) return;
  double* const measures = tensors.measures ? tensors.measures.data<double>() : nullptr;
  for (std::int64_t sequence = 0; sequence < tensors.halves.size(0); ++sequence)
    judge_pairs(pairs_in(tensors, sequence), form, measures);
}

void scale_rows(const Tensor& x, const Tensor& factors, const Stream&) {
  const std::int64_t columns = x.size(1);
  const float* const factor = factors.data<float>();
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    T* const base = x.data<T>();
    parallel_rows(x.size(0), columns, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        T* const row = base + n * columns;
        const float by = factor[n];
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) store(row + i, load(row + i) * by);
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
