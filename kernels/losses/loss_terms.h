#pragma once

#include <cmath>

#include "hybrid_trainer/kernels/loss.h"

namespace hybrid_trainer::kernels {

// Loss terms of both backends; constexpr functions also compile as device code.

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

// For terms that call the math library, whose functions are not constexpr.
#ifdef __CUDACC__
#define HT_TERM __device__ inline
#else
#define HT_TERM inline
#endif

constexpr int kBoxNumbers = 4, kFirstClass = 1 + kBoxNumbers;  // columns of a grid cell

HT_TERM float log_of_one_plus_power(float x) {
  return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

/// Returns the cross entropy. If `writes`, replaces the logits by their gradient times `scale`.
HT_TERM float class_loss(float* logits, std::int64_t classes, std::int64_t wanted, bool writes,
                         float scale) {
  float highest = logits[0], sum = 0;
  for (std::int64_t i = 1; i < classes; ++i) highest = highest < logits[i] ? logits[i] : highest;
  for (std::int64_t i = 0; i < classes; ++i) sum += expf(logits[i] - highest);
  const float loss = logf(sum) - (logits[wanted] - highest);
  if (!writes) return loss;
  for (std::int64_t i = 0; i < classes; ++i)
    logits[i] = (expf(logits[i] - highest) / sum - (i == wanted ? 1.0f : 0.0f)) * scale;
  return loss;
}

/// Returns the loss of a cell with an object. If `scale` is not 0, writes its gradient.
HT_TERM float object_loss(float* row, std::int64_t classes, std::int64_t wanted, const float* box,
                          const GridLossSpec& spec, float scale) {
  float loss = spec.positive_weight * log_of_one_plus_power(-row[0]);
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

/// Returns the loss of a cell without an object. If `scale` is not 0, writes its gradient.
HT_TERM float empty_loss(float* row, std::int64_t columns, float scale) {
  const float loss = log_of_one_plus_power(row[0]);
  if (scale == 0.0f) return loss;
  row[0] = scale / (1.0f + expf(-row[0]));
  for (std::int64_t i = 1; i < columns; ++i) row[i] = 0.0f;
  return loss;
}

/// One text of a pair: its log-probability, number of targets, and reference log-probability.
struct PairHalf {
  double sum, tokens, reference;
};

/// Loss of a pair, its derivatives by the losses of each text's targets, and the rewards.
struct PairOutcome {
  double loss, chosen_weight, rejected_weight, chosen_reward, rejected_reward;
};

HT_TERM double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }

HT_TERM double sigmoid_of(double x) { return exp(log_sigmoid(x)); }

HT_TERM PairOutcome dpo_outcome(double beta, const PairHalf& chosen, const PairHalf& rejected) {
  const double chosen_reward = beta * (chosen.sum - chosen.reference);
  const double rejected_reward = beta * (rejected.sum - rejected.reference);
  const double margin = chosen_reward - rejected_reward;
  const double weight = beta * sigmoid_of(-margin);
  return {-log_sigmoid(margin), weight, -weight, chosen_reward, rejected_reward};
}

/// Returns −(1 − e^m) for a mean log-probability m < 0, limited to m <= −1e-12.
HT_TERM double minus_complement(double mean) { return expm1(mean < -1e-12 ? mean : -1e-12); }

HT_TERM PairOutcome orpo_outcome(double beta, const PairHalf& chosen, const PairHalf& rejected) {
  const double chosen_mean = chosen.sum / chosen.tokens;
  const double rejected_mean = rejected.sum / rejected.tokens;
  const double chosen_complement = -minus_complement(chosen_mean);
  const double rejected_complement = -minus_complement(rejected_mean);
  const double odds =
      chosen_mean - log(chosen_complement) - (rejected_mean - log(rejected_complement));
  const double slope = beta * sigmoid_of(-odds);
  return {-chosen_mean - beta * log_sigmoid(odds), (1 + slope / chosen_complement) / chosen.tokens,
          -slope / rejected_complement / rejected.tokens, beta * chosen_mean, beta * rejected_mean};
}

HT_TERM PairOutcome pair_outcome(const PreferenceForm& form, const PairHalf& chosen,
                                 const PairHalf& rejected) {
  const double beta = form.beta;
  return form.kind == PreferenceForm::Kind::kDpo ? dpo_outcome(beta, chosen, rejected)
                                                 : orpo_outcome(beta, chosen, rejected);
}

}  // namespace hybrid_trainer::kernels
