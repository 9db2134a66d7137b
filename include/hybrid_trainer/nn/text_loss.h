#pragma once

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// Loss over the outputs of a batch's texts (see empty_text_batch).
struct TextLoss {
  enum class Kind {
    kClass,        // cross entropy of one class per text, times the text's label if there is one
    kLabels,       // binary cross entropy of several labels per text
    kRegression,   // squared error
    kContrastive,  // cross entropy of selecting an anchor's positive text in the batch
    kCosent,       // ranking loss of the pairs' cosines against their scores (CoSENT)
    kCosine,       // squared error between a pair's cosine and its score
    kReward,       // −log σ(chosen − rejected)
  };
  Kind kind = Kind::kClass;
  float scale = 20;        // factor of cosines in kContrastive and kCosent
  bool symmetric = false;  // kContrastive: also selects the anchor of each positive text
  /// Numbers of leading channels. Each has a loss, and the loss is their sum. Empty: all channels.
  /// Source: Kusupati et al. 2022, "Matryoshka representation learning".
  std::vector<std::int64_t> dimensions{};

  /// Returns whether the loss of an example depends on the other examples.
  bool compares_examples() const { return kind == Kind::kContrastive || kind == Kind::kCosent; }
  /// Returns the loss of `outputs` (R, C) f32 as (1) f64: the mean over examples, or of all pairs
  /// in kCosent. Unless `gradient_scale` is 0, replaces the outputs by their gradient. For texts
  /// that are compared across micro-batches, returns "output_gradients" (B, S·C) f32 and the first
  /// element of "step_loss" (B) f64 instead.
  Tensor compute(const Tensor& outputs, const Batch& batch, float gradient_scale,
                 const Stream& stream) const;
};

}  // namespace hybrid_trainer
