#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/preference.h"

namespace hybrid_trainer {

/// What a model's loss of pairs of answers is, and what it has measured.
class PreferenceLoss {
 public:
  /// Sums over pairs since the last call of take.
  struct Measures {
    double reward_chosen = 0, reward_rejected = 0, right = 0, pairs = 0;
    Measures& operator+=(const Measures& other);
  };
  void set_form(const kernels::PreferenceForm& form) { form_ = form; }
  const kernels::PreferenceForm& form() const { return form_; }

  /// What the losses of a batch's targets, (B·T) f32, come to: see kernels::preference_loss.
  struct Weighed {
    Tensor pair_losses;  // (B·T) f32
    Tensor weights;      // (B·T) f32
  };
  /// `counts`: whether the batch is added to what is measured.
  Weighed weigh(const Tensor& losses, const Batch& batch, bool counts, const Stream& stream);

  /// Starts to measure anew.
  void clear(const Stream& stream);
  /// What was measured since then, and clears it. Waits for it.
  Measures take(const Stream& stream);
  /// Log-likelihoods of the halves of the last batch, (B, T) f64 on the stream's device.
  const Tensor& sums() const { return sums_; }

 private:
  kernels::PreferenceForm form_;
  Tensor measures_;  // undefined where nothing was measured yet
  Tensor sums_;
};

}  // namespace hybrid_trainer
