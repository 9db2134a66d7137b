#pragma once

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// Loss over the outputs of a batch's texts (see empty_text_batch).
struct TextLoss {
  enum class Kind {
    kClass,        // cross entropy of one class per text
    kLabels,       // binary cross entropy of several labels per text
    kRegression,   // squared error
    kContrastive,  // cross entropy of each second text among the batch's
    kCosent,       // order of the cosines, by score
    kCosine,       // squared error of the cosine
    kReward,       // −log σ(chosen − rejected)
  };
  Kind kind = Kind::kClass;
  float scale = 20;        // of cosines, in kContrastive and kCosent
  bool symmetric = false;  // kContrastive: averaged with each first text among the batch's
  /// Numbers of leading channels, each with a separate loss, which are added; empty: all channels.
  /// Source: Kusupati et al. 2022, "Matryoshka representation learning".
  std::vector<std::int64_t> dimensions{};
  /// Sequences whose activations exist at a time; 0: all of a batch. Fewer sequences are computed
  /// twice: for their outputs, and for backward from the outputs' gradients. Source: Gao et al.
  /// 2021, "Scaling deep contrastive learning batch size under memory limited setup".
  std::int64_t sequences_at_once = 0;

  /// Returns the loss of `outputs` (R, C) f32, a row per text slot, as (1) f64: the mean over the
  /// examples, or one number of all pairs in kCosent. Unless `gradient_scale` is 0, replaces the
  /// outputs by their gradient.
  Tensor compute(const Tensor& outputs, const Batch& batch, float gradient_scale,
                 const Stream& stream) const;
};

}  // namespace hybrid_trainer
