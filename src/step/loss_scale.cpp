#include "src/step/loss_scale.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

template <class Scale, class Visit>
void visit_loss_scale(Scale& value, Scale& growth_steps, Scale& finite_steps, Scale& overflows,
                      const Visit& visit) {
  visit("precision.fp16.loss_scale", value);
  visit("precision.fp16.growth_steps", growth_steps);
  visit("precision.fp16.finite_steps", finite_steps);
  visit("precision.fp16.overflows", overflows);
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

}  // namespace hybrid_trainer
