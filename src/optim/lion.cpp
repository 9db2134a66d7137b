#include "src/optim/lion.h"

#include "hybrid_trainer/kernels/optimizer_update.h"

namespace hybrid_trainer {

Lion::Lion(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream&,
           const StateHome& home)
    : MomentumOptimizer(std::move(parameters), true, home, config.state_bits),
      beta1_(static_cast<float>(config.betas.at(0))),
      beta2_(static_cast<float>(config.betas.at(1))),
      weight_decay_(config.weight_decay) {}

void Lion::update(const Slot& slot, const Tensor& gradient, float learning_rate,
                  float gradient_scale, const Stream& stream) {
  const Parameter& parameter = *slot.parameter;
  const UpdatedWeight weight(parameter, stream);
  const kernels::LionSettings settings{.learning_rate = learning_rate,
                                       .beta1 = beta1_,
                                       .beta2 = beta2_,
                                       .weight_decay = decay_of(parameter, weight_decay_),
                                       .gradient_scale = gradient_scale,
                                       .rounding_key = rounding_key(parameter, steps_),
                                       .first_element = parameter.first_element()};
  if (slot.scales) {
    kernels::lion_update_8bit(weight.master, slot.m, slot.scales, gradient, weight.compute_copy,
                              settings, stream);
  } else {
    kernels::lion_update(weight.master, slot.m, gradient, weight.compute_copy, settings, stream);
  }
}

void Lion::write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                           const Stream& stream) {
  kernels::lion_direction(direction, slot.m, learning_rate, stream);
}

}  // namespace hybrid_trainer
