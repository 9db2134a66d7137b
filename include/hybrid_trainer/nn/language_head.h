#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Bias of the logits, (padded vocabulary, 1).
struct HeadBias {
  Parameter* values = nullptr;  // null: none
  bool is_trained = false;
};

/// The output head: logits = x·tableᵀ and their softmax cross entropy; the table may be shared with
/// the token embedding. Processes rows in chunks, so that the logits never exist as a whole; if
/// tape.keeps(), computes each chunk's gradient during forward.
class LanguageHead {
 public:
  /// `table`: (padded vocabulary, C); rows from `vocabulary` on are padding. `cap`: soft cap c of
  /// the logits, c·tanh(z/c); 0: none. `scale`: of the logits before the cap; if not 1, x is scaled
  /// in place.
  LanguageHead(Parameter& table, std::int64_t vocabulary, float cap = 0, float scale = 1,
               HeadBias bias = {})
      : table_(table), vocabulary_(vocabulary), cap_(cap), scale_(scale), bias_(bias) {}
  /// Returns the summed losses of x (N, C) with targets (N) i32, divided by `divisor`, as (1) f64;
  /// kNoTarget has loss 0, and targets are smoothed by Pass::label_smoothing. If tape.keeps(), also
  /// writes the table's gradient and saves dx, both multiplied by `gradient_scale`.
  Tensor loss(const Tensor& x, const Tensor& targets, double divisor, float gradient_scale,
              ActivationTape& tape, const Stream& stream);
  /// Writes each row's undivided loss to `losses`, (N) f32: loss() without its last part, mean().
  void losses(const Tensor& losses, const Tensor& x, const Tensor& targets, double divisor,
              float gradient_scale, ActivationTape& tape, const Stream& stream);
  /// Returns the summed losses of the pairs in the batch's "halves", divided by its divisor, as (1)
  /// f64. Row weights depend on all losses, so logits of several chunks are computed twice.
  Tensor preference(const Tensor& x, const Batch& batch, PreferenceLoss& preference,
                    float gradient_scale, ActivationTape& tape, const Stream& stream);
  /// Returns the mean that loss() would return, given the losses of all rows.
  static Tensor mean(const Tensor& losses, double divisor, const Stream& stream);
  /// Returns the dx that loss saved, (N, C).
  Tensor backward(ActivationTape& tape, const Stream& stream) { return tape.take(stream); }
  /// Returns (N, padded vocabulary) in x's dtype; padding columns contain 0.
  Tensor logits(const Tensor& x, const Stream& stream);

 private:
  class Chunks;
  Parameter& table_;
  std::int64_t vocabulary_;
  Weight held_bias(const Stream& stream) const {
    return bias_.values ? bias_.values->acquire_master(stream) : Weight{};
  }
  static Tensor as_vector(const Tensor& bias) {
    return bias ? bias.view({bias.elements()}) : Tensor{};
  }
  float cap_, scale_;
  HeadBias bias_;
};

}  // namespace hybrid_trainer
