#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/loss.h"
#include "kernels/backend/share_sums.h"
#include "kernels/backend/vector_math.h"
#include "kernels/losses/loss_terms.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

void check_targets(const std::int32_t* targets, std::int64_t rows, std::int64_t vocabulary) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == kNoTarget) continue;
    if (targets[row] < 0 || targets[row] >= vocabulary)
      throw DataError(concat("softmax_cross_entropy: target ", row, " is ", targets[row],
                             ", want 0 to ", vocabulary - 1,
                             "; was the data tokenized for another vocabulary?"));
  }
}

/// Sum of e^(logit − highest) over a row, and the highest logit.
struct RowExponentials {
  float highest, sum;
  float mean = 0;  // mean of logit − highest, used by smoothed targets
};

template <bool kSmoothed, class T>
inline RowExponentials exponentials_of_row(float* exponentials, const T* logits,
                                           std::int64_t columns) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float value = load(logits + i);
    highest = value > highest ? value : highest;
  }
  // Sums block by block: a float sum over a whole vocabulary would lose small terms.
  constexpr std::int64_t kBlock = 1024;
  double sum = 0, below = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, columns);
    float of_block = 0, below_in_block = 0;
#pragma omp simd reduction(+ : of_block, below_in_block)
    for (std::int64_t i = begin; i < end; ++i) {
      const float less = load(logits + i) - highest, power = exponential(less);
      exponentials[i] = power;
      of_block += power;
      if constexpr (kSmoothed) below_in_block += less;
    }
    sum += of_block;
    below += below_in_block;
  }
  return {highest, static_cast<float>(sum),
          static_cast<float>(below / static_cast<double>(columns))};
}

void check_classes(const std::int32_t* wanted, std::int64_t cells, std::int64_t classes) {
  for (std::int64_t n = 0; n < cells; ++n) {
    if (wanted[n] == kNoTarget || (wanted[n] >= 0 && wanted[n] < classes)) continue;
    throw DataError(concat("grid_loss: the class of cell ", n, " is ", wanted[n], ", want 0 to ",
                           classes - 1, ", or ", kNoTarget, " for a cell without an object"));
  }
}

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

/// Computes losses, sums and weights of a sequence's pairs. Adds pairs to `measures` unless null.
void measure_pairs(const PairsOfSequence& of, const PreferenceForm& form, double* measures) {
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

void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream) {
  const auto [vocabulary, smoothing] = spec;
  const std::int64_t rows = logits.size(0), stride = logits.size(1);
  const std::int32_t* const wanted = targets.data<std::int32_t>();
  float* const loss = losses.data<float>();
  const std::int64_t least = min_rows_per_thread(stride);
  const Tensor scratch = empty_workspace(share_count(rows, least) * stride, DType::kF32, stream);
  if (simulated(stream)) return;
  check_targets(wanted, rows, vocabulary);
  float* const lines = scratch.data<float>();
  visit_real(logits.dtype(), [&]<class T>(T) {
    T* const base = logits.data<T>();
    const std::int64_t columns = vocabulary;
    const float of_all = smoothing, of_target = 1.0f - smoothing,
                of_each = gradient_scale * smoothing / static_cast<float>(columns),
                of_wanted = of_each + gradient_scale * of_target;
    parallel_shares(rows, least, [=](std::int64_t share, std::int64_t begin, std::int64_t end) {
      float* const exponentials = lines + share * stride;
      for (std::int64_t n = begin; n < end; ++n) {
        T* const row = base + n * stride;
        if (wanted[n] == kNoTarget) {
          loss[n] = 0;
          if (gradient_scale != 0.0f) std::fill_n(row, stride, T{});
          continue;
        }
        const auto [highest, sum, mean] =
            of_all != 0 ? exponentials_of_row<true>(exponentials, row, columns)
                        : exponentials_of_row<false>(exponentials, row, columns);
        const float target = load(row + wanted[n]) - highest;
        loss[n] = std::log(sum) - (of_target * target + of_all * mean);
        if (gradient_scale == 0.0f) continue;
        const float factor = gradient_scale / sum;
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i)
          store(row + i, exponentials[i] * factor - of_each);
        store(row + wanted[n], exponentials[wanted[n]] * factor - of_wanted);
        for (std::int64_t i = columns; i < stride; ++i) store(row + i, 0.0f);
      }
    });
  });
}

void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream&) {
  float *const loss = losses.data<float>(), *const values = x.data<float>();
  const float* const wanted = targets.data<float>();
  const bool squares = distance == Distance::kSquared;
  parallel_for(x.elements(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float d = values[i] - wanted[i];
      const LossAndSlope at = squares ? squared_distance(d) : huber_distance(d, delta);
      loss[i] = at.loss;
      if (gradient_scale != 0.0f) values[i] = at.slope * gradient_scale;
    }
  });
}

void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream&) {
  const std::int64_t cells = x.size(0), columns = x.size(1);
  float *const loss = losses.data<float>(), *const rows = x.data<float>();
  const std::int32_t* const wanted = classes.data<std::int32_t>();
  const float* const box = boxes.data<float>();
  check_classes(wanted, cells, columns - kFirstClass);
  for_each_row(cells, columns, [=](std::int64_t n) {
    float* const row = rows + n * columns;
    loss[n] = wanted[n] == kNoTarget ? empty_loss(row, columns, gradient_scale)
                                     : object_loss(row, columns - kFirstClass, wanted[n],
                                                   box + n * kBoxNumbers, spec, gradient_scale);
  });
}

void preference_loss(const PreferenceTensors& tensors, const PreferenceForm& form,
                     const Stream& stream) {
  if (simulated(stream)) return;
  double* const measures = optional_data<double>(tensors.measures);
  for (std::int64_t sequence = 0; sequence < tensors.halves.size(0); ++sequence)
    measure_pairs(pairs_in(tensors, sequence), form, measures);
}

void scale_rows(const Tensor& x, const Tensor& factors, const Stream&) {
  const std::int64_t columns = x.size(1);
  const float* const factor = factors.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const base = x.data<T>();
    for_each_row(x.size(0), columns, [=](std::int64_t n) {
      T* const row = base + n * columns;
      const float by = factor[n];
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) store(row + i, load(row + i) * by);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
