#include "src/trainer/step/step_scales.h"

#include <algorithm>
#include <cstring>

#include "hybrid_trainer/core/error.h"

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

template <class Scale, class Visit>
void visit_loss_scale(Scale& value, Scale& growth_steps, Scale& finite_steps, Scale& overflows,
                      const Visit& visit) {
  visit("precision.fp16.loss_scale", value);
  visit("precision.fp16.growth_steps", growth_steps);
  visit("precision.fp16.finite_steps", finite_steps);
  visit("precision.fp16.overflows", overflows);
}

constexpr const char* kHasFp16 = "precision.fp16.loss_scale";
constexpr const char* kHasFp8 = "precision.fp8.next";

/// Computes the elementwise maximum over all ranks.
void include_other_ranks(std::vector<float>& largest, Communicator& ranks) {
  const std::string_view own(reinterpret_cast<const char*>(largest.data()),
                             largest.size() * sizeof(float));
  for (const std::string& others : ranks.host_gather(own)) {
    require(others.size() == own.size(), "ranks must have the same weights");
    for (std::size_t i = 0; i < largest.size(); ++i) {
      float other = 0;
      std::memcpy(&other, others.data() + i * sizeof(float), sizeof(float));
      largest[i] = std::max(largest[i], other);
    }
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

void LossScale::save(State& state) const {
  visit_loss_scale(value_, growth_steps_, finite_steps_, overflows_,
                   [&](const char* name, std::int64_t value) { state.integers[name] = value; });
}

void LossScale::load(const State& state) {
  visit_loss_scale(value_, growth_steps_, finite_steps_, overflows_,
                   [&](const char* name, std::int64_t& value) { value = state.integer(name); });
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
