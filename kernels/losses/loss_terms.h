#pragma once

#include <cmath>

#include "hybrid_trainer/kernels/loss.h"

namespace hybrid_trainer::kernels {

// For every backend: constexpr functions also compile as device code.

struct LossAndSlope {
  float loss, slope;
};

constexpr LossAndSlope squared_distance(float d) { return {d * d, 2 * d}; }

constexpr LossAndSlope huber_distance(float d, float delta) {
  const float size = d < 0 ? -d : d;
  if (size > delta) return {delta * (size - 0.5f * delta), d < 0 ? -delta : delta};
  return {0.5f * d * d, d};
}

constexpr LossAndSlope smooth_distance(float d, float beta) {
  const float size = d < 0 ? -d : d;
  if (size >= beta) return {size - 0.5f * beta, d < 0 ? -1.0f : 1.0f};
  return {0.5f * d * d / beta, d / beta};
}

}  // namespace hybrid_trainer::kernels

// Both backends compute a pair by these lines; CUDA's defines this as a function of the device first.
#ifndef HT_OF_PAIR
#define HT_OF_PAIR inline
#endif

namespace hybrid_trainer::kernels {

/// A text of a pair: the sum of its targets' log-probabilities and their number, and the reference's
/// sum.
struct PairHalf {
  double sum, tokens, reference;
};

/// The loss of a pair and its derivatives by the losses of the targets of both texts.
struct PairOutcome {
  double loss, chosen_weight, rejected_weight, chosen_reward, rejected_reward;
};

/// log σ(x).
HT_OF_PAIR double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }

HT_OF_PAIR double sigmoid_of(double x) { return exp(log_sigmoid(x)); }

HT_OF_PAIR PairOutcome dpo_outcome(double beta, const PairHalf& chosen, const PairHalf& rejected) {
  const double chosen_reward = beta * (chosen.sum - chosen.reference);
  const double rejected_reward = beta * (rejected.sum - rejected.reference);
  const double margin = chosen_reward - rejected_reward;
  const double weight = beta * sigmoid_of(-margin);
  return {-log_sigmoid(margin), weight, -weight, chosen_reward, rejected_reward};
}

/// −(1 − e^m), of which m < 0 is a mean log-probability.
HT_OF_PAIR double minus_rest_of(double mean) { return expm1(mean < -1e-12 ? mean : -1e-12); }

HT_OF_PAIR PairOutcome orpo_outcome(double beta, const PairHalf& chosen, const PairHalf& rejected) {
  const double chosen_mean = chosen.sum / chosen.tokens;
  const double rejected_mean = rejected.sum / rejected.tokens;
  const double chosen_rest = -minus_rest_of(chosen_mean);
  const double rejected_rest = -minus_rest_of(rejected_mean);
  const double odds = chosen_mean - log(chosen_rest) - (rejected_mean - log(rejected_rest));
  const double slope = beta * sigmoid_of(-odds);
  return {-chosen_mean - beta * log_sigmoid(odds), (1 + slope / chosen_rest) / chosen.tokens,
          -slope / rejected_rest / rejected.tokens, beta * chosen_mean, beta * rejected_mean};
}

HT_OF_PAIR PairOutcome pair_outcome(const PreferenceForm& form, const PairHalf& chosen,
                                    const PairHalf& rejected) {
  const double beta = form.beta;
  return form.kind == PreferenceForm::Kind::kDpo ? dpo_outcome(beta, chosen, rejected)
                                                 : orpo_outcome(beta, chosen, rejected);
}

}  // namespace hybrid_trainer::kernels
