#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// The output head: logits = x·tableᵀ, and the softmax cross-entropy on top; the table is the token
/// table or one of its own. Rows are processed in chunks, so that no array of all logits exists; if
/// the tape keeps, each chunk's gradient is computed at once.
class LanguageHead {
 public:
  /// `table`: (padded vocabulary, C); rows from `vocabulary` on are padding and are ignored.
  /// `cap`: logits z become c·tanh(z/c); 0: as they are. `scale`: of the logits before that; where it
  /// is not 1, x is multiplied by it in place.
  /// `bias`: (padded vocabulary, 1), added to the logits and not trained, or null.
  LanguageHead(Parameter& table, std::int64_t vocabulary, float cap = 0, float scale = 1,
               Parameter* bias = nullptr)
      : table_(table), vocabulary_(vocabulary), cap_(cap), scale_(scale), bias_(bias) {}
  /// The losses of all rows of x (N, C) with targets (N) i32, kNoTarget's 0, summed and divided by
  /// `divisor`, as (1) f64; targets are smoothed as the pass says. Where the tape keeps, also writes the table's gradient and saves dx; both
  /// are multiplied by `gradient_scale`.
  Tensor loss(const Tensor& x, const Tensor& targets, double divisor, float gradient_scale,
              ActivationTape& tape, const Stream& stream);
  /// The same in parts: of rows whose losses, (N) f32, are undivided.
  void losses(const Tensor& losses, const Tensor& x, const Tensor& targets, double divisor,
              float gradient_scale, ActivationTape& tape, const Stream& stream);
  /// The same of pairs of answers in the batch's "halves": the losses of its pairs, summed and divided
  /// by the batch's divisor, as (1) f64. How much a row weighs is known when all losses are, so that
  /// the logits are computed twice where a chunk does not hold them.
  Tensor preference(const Tensor& x, const Batch& batch, PreferenceLoss& preference,
                    float gradient_scale, ActivationTape& tape, const Stream& stream);
  /// The mean that loss would return, of the losses of all rows.
  static Tensor mean(const Tensor& losses, double divisor, const Stream& stream);
  /// The dx that loss saved, (N, C).
  Tensor backward(ActivationTape& tape, const Stream& stream) { return tape.take(stream); }
  /// (N, padded vocabulary) in x's dtype; padding columns hold 0.
  Tensor logits(const Tensor& x, const Stream& stream);

 private:
  class Chunks;
  Parameter& table_;
  std::int64_t vocabulary_;
  /// The values to add; none where there is no bias.
  Weight held_bias(const Stream& stream) const {
    return bias_ ? bias_->acquire_master(stream) : Weight{};
  }
  static Tensor as_vector(const Tensor& bias) {
    return bias ? bias.view({bias.elements()}) : Tensor{};
  }
  float cap_, scale_;
  Parameter* bias_;
};

}  // namespace hybrid_trainer
