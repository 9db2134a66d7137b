#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "hybrid_trainer/kernels/loss.h"
#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {

/// Reference results of a pair in double precision.
struct PairOfCase {
  double chosen_sum = 0, rejected_sum = 0, chosen_reward = 0, rejected_reward = 0, loss = 0;
};

/// Three sequences of 40 positions: with two pairs, filled by a pair, and with non-targets.
struct PairsCase {
  /// `loss`: of every target; random if not given.
  explicit PairsCase(const Stream& on, std::optional<double> loss = {}) : stream(on) {
    const Shape shape{sequences, length};
    losses = random_squares(shape, 5, stream);
    halves = Tensor::empty(shape, DType::kI32, MemoryKind::kActivations, stream);
    references = random_tensor(shape, DType::kF32, 6, stream, 10);
    std::int32_t* const half = halves.data<std::int32_t>();
    std::fill_n(half, shape.elements(), -1);
    const auto set = [&](std::int64_t b, std::int64_t begin, std::int64_t end, std::int32_t h) {
      for (std::int64_t t = begin; t < end; ++t) half[b * length + t] = h;
    };
    set(0, 2, 7, 0), set(0, 9, 10, 1), set(0, 12, 20, 2), set(0, 25, 38, 3);
    set(1, 0, 20, 0), set(1, 20, 40, 1);
    set(2, 5, 9, 0), set(2, 11, 14, 1);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      if (loss) losses.data<float>()[i] = static_cast<float>(*loss);
      if (half[i] < 0) losses.data<float>()[i] = 0;
    }
  }
  std::int64_t pairs_of(std::int64_t b) const { return b == 0 ? 2 : 1; }
  PreferenceTensors tensors() const {
    const Shape shape{sequences, length};
    const auto empty = [&](DType dtype) {
      return Tensor::empty(shape, dtype, MemoryKind::kActivations, stream);
    };
    return {losses,
            halves,
            references,
            empty(DType::kF32),
            empty(DType::kF32),
            empty(DType::kF64),
            Tensor::zeros({kPreferenceMeasures}, DType::kF64, MemoryKind::kActivations, stream)};
  }
  /// Results of all pairs in order, for these losses of the targets.
  std::vector<PairOfCase> outcomes(const PreferenceForm& form, const Values& of_targets) const {
    std::vector<PairOfCase> all;
    for (std::int64_t b = 0; b < sequences; ++b) {
      for (std::int64_t i = 0; i < pairs_of(b); ++i) all.push_back(outcome(form, of_targets, b, i));
    }
    return all;
  }

  static constexpr std::int64_t sequences = 3, length = 40;
  const Stream& stream;
  Tensor losses, halves, references;

 private:
  PairOfCase outcome(const PreferenceForm& form, const Values& of_targets, std::int64_t b,
                     std::int64_t i) const {
    double sums[2] = {}, tokens[2] = {};
    for (std::int64_t t = b * length; t < (b + 1) * length; ++t) {
      const std::int64_t half = halves.data<std::int32_t>()[t] - 2 * i;
      if (half != 0 && half != 1) continue;
      sums[half] -= of_targets[static_cast<std::size_t>(t)];
      tokens[half] += 1;
    }
    const double beta = form.beta;
    const float* const reference = references.data<float>() + b * length + 2 * i;
    PairOfCase pair{.chosen_sum = sums[0], .rejected_sum = sums[1]};
    if (form.kind == PreferenceForm::Kind::kDpo) {
      pair.chosen_reward = beta * (sums[0] - reference[0]);
      pair.rejected_reward = beta * (sums[1] - reference[1]);
      pair.loss = std::log1p(std::exp(-(pair.chosen_reward - pair.rejected_reward)));
      return pair;
    }
    const double m[2] = {sums[0] / tokens[0], sums[1] / tokens[1]};
    const auto odds = [&](int half) { return m[half] - std::log(1 - std::exp(m[half])); };
    pair.chosen_reward = beta * m[0];
    pair.rejected_reward = beta * m[1];
    pair.loss = -m[0] + beta * std::log1p(std::exp(-(odds(0) - odds(1))));
    return pair;
  }
};

}  // namespace hybrid_trainer::kernels
