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

/// The output head: logits = x·tableᵀ and their cross entropy, in chunks of rows to save memory. If
/// tape.keeps(), computes each chunk's gradient in forward.
class LanguageHead {
 public:
  /// `table`: (padded vocabulary, C). `cap`: soft cap c of the logits, c·tanh(z/c); 0: none.
  /// `scale`: factor of the logits before the cap; if it is not 1, x is scaled in place.
  LanguageHead(Parameter& table, std::int64_t vocabulary, float cap = 0, float scale = 1,
               HeadBias bias = {})
      : table_(table), vocabulary_(vocabulary), cap_(cap), scale_(scale), bias_(bias) {}
  /// Returns the sum of the losses of x (N, C) with targets (N) i32, divided by `divisor`, as (1)
  /// f64. If tape.keeps(), also writes the table's gradient and saves dx, both multiplied by
  /// `gradient_scale`.
  Tensor loss(const Tensor& x, const Tensor& targets, double divisor, float gradient_scale,
              ActivationTape& tape, const Stream& stream);
  /// Like `loss`, but writes the undivided losses to `losses`, (N) f32, for `mean`.
  void losses(const Tensor& losses, const Tensor& x, const Tensor& targets, double divisor,
              float gradient_scale, ActivationTape& tape, const Stream& stream);
  /// Returns the sum of the pairs' preference losses, divided by loss_divisor, as (1) f64. Computes
  /// logits twice if there are several chunks.
  Tensor preference(const Tensor& x, const Batch& batch, PreferenceLoss& preference,
                    float gradient_scale, ActivationTape& tape, const Stream& stream);
  /// Returns the result of `loss`, given the losses of all rows.
  static Tensor mean(const Tensor& losses, double divisor, const Stream& stream);
  /// Returns the gradient of x that `loss` has saved, (N, C).
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
