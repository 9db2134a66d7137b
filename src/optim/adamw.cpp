#include "adamw.h"

#include <cmath>

#include "hybrid_trainer/kernels/optimizer_update.h"

namespace hybrid_trainer {
namespace {

kernels::AdamWSettings settings_of(const OptimizerConfig& config, double learning_rate,
                                   std::int64_t step) {
  kernels::AdamWSettings settings;
  settings.learning_rate = static_cast<float>(learning_rate);
  settings.beta1 = static_cast<float>(config.betas[0]);
  settings.beta2 = static_cast<float>(config.betas[1]);
  settings.epsilon = static_cast<float>(config.epsilon);
  settings.step = step;
  return settings;
}

/// β·(1 − β^t)/(1 − β^(t+1)): how a bias-corrected mean after t > 0 steps shrinks by one step that
/// adds zero.
double shrinkage(double beta, std::int64_t t) {
  const double steps = static_cast<double>(t);
  return beta * (1 - std::pow(beta, steps)) / (1 - std::pow(beta, steps + 1));
}

}  // namespace

AdamW::AdamW(const OptimizerConfig& config, std::vector<Parameter*> parameters,
             const Stream& stream)
    : config_(config), parameters_(std::move(parameters)) {
  require(config_.betas.size() == 2 && config_.betas[1] > 0,
          "optimizer.betas must hold two numbers, the second above 0");
  for (Parameter* parameter : parameters_) {
    slots_.push_back(
        {parameter, make_state(parameter->value, stream), make_state(parameter->value, stream)});
  }
}

void AdamW::step(float learning_rate, float gradient_scale, const Stream& stream) {
  for (const OptimizerSlot& slot : slots_) require_state(slot, slot.v);
  kernels::AdamWSettings settings = settings_of(config_, learning_rate, ++steps_);
  settings.gradient_scale = gradient_scale;
  for (const OptimizerSlot& slot : slots_) {
    const Parameter& parameter = *slot.parameter;
    if (!parameter.has_gradient) continue;
    settings.weight_decay = decay_of(parameter, config_.weight_decay);
    kernels::adamw_update(parameter.value, slot.m, slot.v, parameter.gradient, parameter.working,
                          settings, stream);
  }
}

void AdamW::write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                      const Stream& stream) {
  require_directions(directions, parameters_);
  if (steps_ == 0) {
    for (const Tensor& direction : directions) fill_zero(direction, stream);
    return;
  }
  // A zero gradient shrinks m̂ and v̂ by known factors, so that the step it makes is a step of the
  // present moments with another learning rate and epsilon.
  const double root = std::sqrt(shrinkage(config_.betas[1], steps_));
  kernels::AdamWSettings settings =
      settings_of(config_, learning_rate * shrinkage(config_.betas[0], steps_) / root, steps_);
  settings.epsilon = static_cast<float>(config_.epsilon / root);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    require_state(slots_[i], slots_[i].v);
    kernels::adamw_direction(directions[i], slots_[i].m, slots_[i].v, settings, stream);
  }
}

void AdamW::visit_state(const StateVisitor& visit) {
  for (OptimizerSlot& slot : slots_) {
    visit(slot.parameter->name + ".m", slot.m);
    visit(slot.parameter->name + ".v", slot.v);
  }
}

}  // namespace hybrid_trainer
