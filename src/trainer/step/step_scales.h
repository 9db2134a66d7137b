#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/product_rounding.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/phases/trainable.h"
#include "src/config/stages.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Learning rate of each step: the schedule's, times factors of stages, finder and rollbacks.
class LearningRates {
 public:
  LearningRates(const HybridTrainerConfig& config, const Stages& stages);
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  std::int64_t steps_done() const { return steps_done_; }
  /// Set factors on the schedule's rates, initially 1.
  void set_found_factor(double factor) { found_factor_ = factor; }
  void set_rate_factor(double factor) { rate_factor_ = factor; }

  double rate() const { return rate_at(steps_done_); }
  /// Returns one rate per step of delay, starting `first` steps after the next step.
  std::vector<float> rates_from(std::int64_t first) const;
  RunProgress progress() const { return {steps_done_ + 1, steps_, scheduled(steps_done_ + 1)}; }

 private:
  double scheduled(std::int64_t steps_done) const;
  double rate_at(std::int64_t steps_done) const;

  const ScheduleConfig schedule_;
  const double peak_;
  const std::int64_t steps_, lag_;
  const Stages& stages_;
  std::int64_t steps_done_ = 0;
  double found_factor_ = 1, rate_factor_ = 1;
};

/// Loss scale in fp16, which keeps small gradients above 0 and large ones finite.
class LossScale {
 public:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 24;

  explicit LossScale(const MixedPrecisionConfig& config)
      : value_(config.loss_scale), growth_steps_(config.loss_scale_growth_steps) {}
  double value() const { return static_cast<double>(value_); }
  std::int64_t overflows() const { return overflows_; }
  /// Halves the factor after an overflow. Returns false if it is 1: scaling is then not the cause.
  bool halve();
  /// Counts a finite gradient. Returns whether this has doubled the factor.
  bool add_finite_step();
  void save(State& state) const;
  void load(const State& state);

 private:
  template <class Self, class Visit>
  static void visit_state(Self& self, const Visit& visit);
  std::int64_t value_, growth_steps_;
  std::int64_t finite_steps_ = 0;  // consecutive steps since the factor changed
  std::int64_t overflows_ = 0;
};

/// Scales of a step: of the loss in fp16, and of operands in fp8. They are equal on all ranks.
class StepScales {
 public:
  StepScales(LossModel& model, const HybridTrainerConfig& config, Communicator* ranks,
             const Stream& stream, const Stream& host);
  void set_form(ProductForm form);
  const ProductRounding* rounding() const {
    return rounding_.form() == ProductForm::kAsStored ? nullptr : &rounding_;
  }
  /// Returns the factor of the loss and of the gradients, which is 1 except in fp16.
  double loss_scale() const { return is_fp16() ? loss_scale_.value() : 1; }
  /// Call before each attempt to compute the gradient of a step.
  void begin_gradient() const;
  /// Returns the measurement, from a step's loss and the norm of its stored gradient, which is
  /// scaled in fp16. If only the gradient is not finite, lowers the loss scale.
  GradientMeasurement measure(double loss, double norm);
  /// Returns the factor that limits the last gradient's norm to optimizer.clip_norm.
  float clip_scale() const;
  /// Returns the factor of the stored gradient in an update: clip_scale() over the loss scale.
  float update_scale() const { return clip_scale() / static_cast<float>(gradient_loss_scale_); }
  /// Returns the loss scale of the last gradient. Slopes along this gradient must be divided by it.
  double gradient_loss_scale() const { return gradient_loss_scale_; }
  /// Adjusts scales after an update. Returns whether the loss scale has changed. Collective in fp8.
  bool wait_for_update();
  /// Returns the loss scale of runs with a phase in fp16, else null.
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
  double gradient_norm_ = 0, gradient_loss_scale_ = 1;  // norm and scale of the last gradient
  bool has_fp16_;                                       // whether any phase uses fp16
  bool has_fp8_ = false;                                // whether any phase has used fp8
};

}  // namespace hybrid_trainer
