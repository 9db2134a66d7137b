#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/product_rounding.h"
#include "hybrid_trainer/phases/method_support.h"
#include "src/step/loss_scale.h"

namespace hybrid_trainer {

/// The scales of a step whose products have few bits: of the loss in fp16, and of each operand in
/// fp8. Ranks have the same.
class StepScales {
 public:
  /// All must outlive it; `ranks` may be null.
  StepScales(LossModel& model, const HybridTrainerConfig& config, Communicator* ranks,
             const Stream& stream, const Stream& host);
  void set_form(ProductForm form);
  /// For Pass::products.
  const ProductRounding* rounding() const {
    return rounding_.form() == ProductForm::kAsStored ? nullptr : &rounding_;
  }
  /// Factor of the loss, and so of the gradients; 1 but in fp16.
  double loss_scale() const { return is_fp16() ? loss_scale_.value() : 1; }
  /// Before each attempt at a step's gradient.
  void begin_gradient() const;
  /// A step's loss and the norm of its gradient as it lies there, which in fp16 is that of the scaled
  /// loss. Where only the gradient is not finite, lowers the factor.
  GradientMeasurement measure(double loss, double norm);
  /// What the last gradient is multiplied by so that its norm is at most optimizer.clip_norm.
  float clip_scale() const;
  /// The same of the gradient as it lies there.
  float update_scale() const { return clip_scale() / static_cast<float>(gradient_loss_scale_); }
  /// What a slope along the last gradient is divided by.
  double gradient_loss_scale() const { return gradient_loss_scale_; }
  /// The update by the last gradient is made: what it showed scales the next. True where the factor
  /// of the loss changed. A collective in fp8. Blocks.
  bool wait_for_update();
  /// Of runs with a phase in fp16; else null.
  const LossScale* used_loss_scale() const { return has_fp16_ ? &loss_scale_ : nullptr; }
  void save(State& state) const;
  void load(const State& state);

 private:
  bool is_fp16() const { return rounding_.form() == ProductForm::kFp16; }
  bool is_fp8() const { return rounding_.form() == ProductForm::kFp8; }
  Communicator* ranks_;
  const Stream& stream_;
  ProductRounding rounding_;
  LossScale loss_scale_;
  const double clip_norm_;
  double gradient_norm_ = 0, gradient_loss_scale_ = 1;  // of the last gradient
  bool has_fp16_;                                       // some phase computes in it
  bool has_fp8_ = false;                                // some phase has computed in it
};

}  // namespace hybrid_trainer
