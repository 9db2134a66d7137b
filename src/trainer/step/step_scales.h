#pragma once

#include <cstdint>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/product_rounding.h"
#include "hybrid_trainer/optim/learning_rate_schedule.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/phases/trainable.h"
#include "src/config/stretches.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// The learning rate of each step: the schedule's, times what stretches, the learning rate finder and
/// going back to a checkpoint make of it.
class LearningRates {
 public:
  /// `stretches` must outlive it.
  LearningRates(const HybridTrainerConfig& config, const Stretches& stretches);
  /// Steps done before the one to come.
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  std::int64_t steps_done() const { return steps_done_; }
  /// Factors on the schedule's rates, 1 at first: what the finder found, and after going back.
  void set_found_factor(double factor) { found_factor_ = factor; }
  void set_rate_factor(double factor) { rate_factor_ = factor; }

  /// Of the step to come.
  double rate() const { return rate_at(steps_done_); }
  /// Of as many steps as updates are delayed, from the `first` after the one to come on.
  std::vector<float> rates_from(std::int64_t first) const;
  /// Where the run stands, for optimizers that depend on it.
  RunProgress progress() const { return {steps_done_ + 1, steps_, scheduled(steps_done_ + 1)}; }

 private:
  double scheduled(std::int64_t steps_done) const;
  double rate_at(std::int64_t steps_done) const;

  const ScheduleConfig schedule_;
  const double peak_;
  const std::int64_t steps_, lag_;
  const Stretches& stretches_;
  std::int64_t steps_done_ = 0;
  double found_factor_ = 1, rate_factor_ = 1;
};

/// Factor of the loss in fp16, so that small gradients do not become 0 and large ones stay finite.
class LossScale {
 public:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 24;

  explicit LossScale(const MixedPrecisionConfig& config)
      : value_(config.loss_scale), growth_steps_(config.loss_scale_growth_steps) {}
  double value() const { return static_cast<double>(value_); }
  /// Steps whose gradient overflowed.
  std::int64_t overflows() const { return overflows_; }
  /// A step's gradient overflowed: halves the factor. False where it is 1 already, so that the factor
  /// is not the reason.
  bool halve();
  /// A step's gradient was finite; true where that doubled the factor.
  bool add_finite_step();
  void save(State& state) const;
  void load(const State& state);

 private:
  std::int64_t value_, growth_steps_;
  std::int64_t finite_steps_ = 0;  // in a row, since the factor changed
  std::int64_t overflows_ = 0;
};

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
