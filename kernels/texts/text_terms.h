#pragma once

#include "hybrid_trainer/kernels/texts.h"
#include "kernels/losses/loss_terms.h"

namespace hybrid_trainer::kernels {

// Terms of both backends; constexpr functions also compile as device code.

constexpr float kMinNorm = 1e-12f;

/// Tokens [begin, end) of a sequence whose sum times `share` is a text's vector.
struct PooledTokens {
  std::int64_t begin = 0, end = 0;
  float share = 0;
};

struct TextEnds {
  const std::int32_t* ends;
  std::int64_t slots, length;

  constexpr std::int64_t begin(std::int64_t slot) const { return slot == 0 ? 0 : ends[slot - 1]; }
  /// Returns whether the slot is empty or its text begins at the previous text's end.
  constexpr bool is_valid(std::int64_t slot) const {
    return ends[slot] == 0 ||
           (begin(slot) < ends[slot] && ends[slot] <= length && (slot == 0 || begin(slot) > 0));
  }
  /// Returns an empty range if the slot is empty or not valid.
  constexpr PooledTokens pooled(std::int64_t slot, Pooling pooling) const {
    const std::int64_t first = begin(slot), end = ends[slot];
    if (end == 0 || !is_valid(slot)) return {};
    if (pooling == Pooling::kFirst) return {first, first + 1, 1};
    if (pooling == Pooling::kLast) return {end - 1, end, 1};
    return {first, end, 1 / static_cast<float>(end - first)};
  }
  /// Returns the slot of the token's text, or `slots` if the token does not belong to a text.
  constexpr std::int64_t slot_of(std::int64_t token) const {
    std::int64_t low = 0, high = slots;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (ends[middle] == 0 || ends[middle] > token) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low < slots && ends[low] != 0 ? low : slots;
  }
  /// Returns the token's share of the vector of its text in `slot`.
  constexpr float share_of(std::int64_t token, std::int64_t slot, Pooling pooling) const {
    if (slot == slots) return 0;
    const PooledTokens of = pooled(slot, pooling);
    return token >= of.begin && token < of.end ? of.share : 0;
  }
};

/// The other text of a pair, and the slot of the pair's values. −1 if there is none.
struct PairPartner {
  std::int64_t row = -1, pair = -1;
};

/// The roles of R slots, as in contrastive_loss.
struct TextRoles {
  const std::int32_t* roles;
  std::int64_t slots;

  constexpr bool has(std::int64_t slot, std::int32_t role) const {
    return slot >= 0 && slot < slots && roles[slot] == role;
  }
  constexpr bool is_pair(std::int64_t slot) const { return has(slot, 0) && has(slot + 1, 1); }
  constexpr PairPartner partner(std::int64_t slot) const {
    if (is_pair(slot)) return {slot + 1, slot};
    if (is_pair(slot - 1)) return {slot - 1, slot - 1};
    return {};
  }
};

/// Rows, columns and targets of contrastive_loss.
struct ContrastiveTexts {
  TextRoles of;
  bool from_anchors;
  double scale;

  constexpr bool is_row(std::int64_t i) const { return of.roles[i] == (from_anchors ? 0 : 1); }
  constexpr bool is_column(std::int64_t j) const {
    return from_anchors ? of.roles[j] >= 1 : of.roles[j] == 0;
  }
  constexpr std::int64_t target(std::int64_t i) const { return from_anchors ? i + 1 : i - 1; }
  constexpr bool has_target(std::int64_t i) const {
    return of.has(target(i), from_anchors ? 1 : 0);
  }
  /// Returns p_j / p_target, p being the softmax of row i, for a column j other than the target.
  HT_TERM double ratio(std::int64_t j, double similarity, double of_target) const {
    return is_column(j) ? exp(scale * (similarity - of_target)) : 0;
  }
  /// Returns the derivative of row i's loss by similarity j. `sum` is the sum of all ratios.
  HT_TERM double slope(std::int64_t i, std::int64_t j, double similarity, double of_target,
                       double sum) const {
    return scale * (j == target(i) ? -sum : ratio(j, similarity, of_target)) / (1 + sum);
  }
};

struct RankedCosines {
  const float *cosines, *labels;
  TextRoles of;
  double scale;

  /// Returns the term of i and j if label i > label j, else 0.
  HT_TERM double term(std::int64_t i, std::int64_t j) const {
    if (of.roles[i] != 0 || of.roles[j] != 0 || !(labels[i] > labels[j])) return 0;
    return exp(scale * (static_cast<double>(cosines[j]) - static_cast<double>(cosines[i])));
  }
};

struct LabelTerm {
  double loss, slope;
};

HT_TERM LabelTerm binary_term(double logit, double label) {
  return {(1 - label) * logit - log_sigmoid(logit),
          (1 - label) * sigmoid_of(logit) - label * sigmoid_of(-logit)};
}

constexpr LabelTerm squared_term(double x, double label) {
  return {(x - label) * (x - label), 2 * (x - label)};
}

}  // namespace hybrid_trainer::kernels
