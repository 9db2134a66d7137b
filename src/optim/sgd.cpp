#include "sgd.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/optimizer_update.h"

namespace hybrid_trainer {

Sgd::Sgd(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream)
    : momentum_(config.momentum),
      weight_decay_(config.weight_decay),
      parameters_(std::move(parameters)) {
  for (Parameter* parameter : parameters_) {
    slots_.push_back(
        {parameter, has_momentum() ? make_state(*parameter, stream) : Tensor{}, Tensor{}});
  }
}

void Sgd::step(float learning_rate, float gradient_scale, const Stream& stream) {
  if (has_momentum()) {
    for (const OptimizerSlot& slot : slots_) require_state(*slot.parameter, slot.m);
  }
  ++steps_;
  for (const OptimizerSlot& slot : slots_) {
    const Parameter& parameter = *slot.parameter;
    const Tensor gradient = parameter.gradient();
    if (!gradient) continue;
    const UpdatedWeight weight(parameter, stream);
    kernels::sgd_update(weight.master, slot.m, gradient, weight.compute_copy, learning_rate,
                        static_cast<float>(momentum_), decay_of(parameter, weight_decay_),
                        gradient_scale, stream);
  }
}

void Sgd::write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                    const Stream& stream) {
  require_directions(directions, parameters_);
  const float factor = -learning_rate * static_cast<float>(momentum_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (has_momentum()) {
      require_state(*slots_[i].parameter, slots_[i].m);
      kernels::scale(directions[i], slots_[i].m, factor, stream);
    } else {
      fill_zero(directions[i], stream);
    }
  }
}

void Sgd::visit_state(const StateVisitor& visit) {
  if (!has_momentum()) return;
  for (OptimizerSlot& slot : slots_) visit(slot.parameter->name() + ".m", slot.m);
}

}  // namespace hybrid_trainer
