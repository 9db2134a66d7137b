#include "src/trainer/step/step_scales.h"

#include "phases/state_fields.h"

namespace hybrid_trainer {

LearningRates::LearningRates(const HybridTrainerConfig& config, const Stages& stages)
    : schedule_(config.schedule),
      peak_(config.optimizer.learning_rate),
      steps_(config.training.steps),
      lag_(config.phases.traits().delay),
      stages_(stages) {}

double LearningRates::scheduled(std::int64_t steps_done) const {
  return learning_rate(schedule_, peak_, steps_done, steps_);
}

double LearningRates::rate_at(std::int64_t steps_done) const {
  return found_factor_ * rate_factor_ * stages_.at(steps_done).rate_factor * scheduled(steps_done);
}

std::vector<float> LearningRates::rates_from(std::int64_t first) const {
  std::vector<float> rates;
  for (std::int64_t i = 0; i < lag_; ++i)
    rates.push_back(static_cast<float>(rate_at(steps_done_ + first + i)));
  return rates;
}

namespace {

constexpr const char* kHasFp16 = "precision.fp16.loss_scale";
constexpr const char* kHasFp8 = "precision.fp8.next";

/// Computes the elementwise maximum over all ranks.
void include_other_ranks(std::vector<float>& largest, Communicator& ranks) {
  for (const std::vector<float>& others : gather_numbers<float>(largest, ranks)) {
    require(others.size() == largest.size(), "ranks must have the same weights");
    std::ranges::transform(largest, others, largest.begin(), std::ranges::max);
  }
}

}  // namespace

bool LossScale::halve() {
  if (value_ == 1) return false;
  value_ /= 2;
  finite_steps_ = 0;
  ++overflows_;
  return true;
}

bool LossScale::add_finite_step() {
  if (++finite_steps_ < growth_steps_) return false;
  finite_steps_ = 0;
  if (value_ == kLargest) return false;
  value_ *= 2;
  return true;
}

template <class Self, class Visit>
void LossScale::visit_state(Self& self, const Visit& visit) {
  visit("precision.fp16.loss_scale", self.value_);
  visit("precision.fp16.growth_steps", self.growth_steps_);
  visit("precision.fp16.finite_steps", self.finite_steps_);
  visit("precision.fp16.overflows", self.overflows_);
}

void LossScale::save(State& state) const { visit_state(*this, StateWriter{state}); }

void LossScale::load(const State& state) {
  visit_state(*this, StateReader{state});
  if (value_ < 1 || value_ > kLargest)
    throw DataError(concat("precision.fp16.loss_scale: got ", value_, ", want 1 to ", kLargest));
}

StepScales::StepScales(LossModel& model, const HybridTrainerConfig& config, Communicator* ranks,
                       const Stream& stream, const Stream& host)
    : ranks_(ranks),
      stream_(stream),
      rounding_(all_parameters(model), stream, host),
      loss_scale_(config.mixed_precision),
      clip_norm_(config.optimizer.clip_norm),
      has_fp16_(config.computes_in("fp16")) {}

void StepScales::set_form(ProductForm form) {
  rounding_.set_form(form);
  has_fp8_ = has_fp8_ || is_fp8();
}

void StepScales::begin_gradient() const {
  if (is_fp8()) rounding_.history().clear(stream_);
}

GradientMeasurement StepScales::measure(double loss, double norm) {
  gradient_loss_scale_ = loss_scale();
  gradient_norm_ = norm / gradient_loss_scale_;
  GradientMeasurement measured{.loss = loss, .norm = gradient_norm_};
  const bool overflowed = is_fp16() && std::isfinite(loss) && !std::isfinite(norm);
  if (overflowed && loss_scale_.halve()) measured.lowered_loss_scale = loss_scale_.value();
  return measured;
}

float StepScales::clip_scale() const {
  return hybrid_trainer::clip_scale(gradient_norm_, clip_norm_);
}

bool StepScales::wait_for_update() {
  if (is_fp16()) return loss_scale_.add_finite_step();
  if (!is_fp8()) return false;
  std::vector<float> largest = rounding_.history().wait_for_current(stream_);
  if (ranks_ != nullptr) include_other_ranks(largest, *ranks_);
  rounding_.history().wait_for_update(largest, stream_);
  return false;
}

void StepScales::save(State& state) const {
  if (has_fp16_) loss_scale_.save(state);
  if (has_fp8_) rounding_.history().save(state);
}

void StepScales::load(const State& state) {
  has_fp16_ = state.integers.contains(kHasFp16);
  if (has_fp16_) loss_scale_.load(state);
  has_fp8_ = state.integers.contains(kHasFp8) || is_fp8();
  rounding_.history().load(state, stream_);
}

}  // namespace hybrid_trainer
