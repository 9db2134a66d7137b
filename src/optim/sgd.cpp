#include "src/optim/sgd.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/optimizer_update.h"

namespace hybrid_trainer {

Sgd::Sgd(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream&,
         const StateHome& home)
    : MomentumOptimizer(std::move(parameters), config.momentum > 0, home),
      momentum_(static_cast<float>(config.momentum)),
      weight_decay_(config.weight_decay) {}

void Sgd::update(const Slot& slot, const Tensor& gradient, float learning_rate,
                 float gradient_scale, const Stream& stream) {
  const UpdatedWeight weight(*slot.parameter, stream);
  kernels::sgd_update(weight.master, slot.m, gradient, weight.compute_copy, learning_rate,
                      momentum_, decay_of(*slot.parameter, weight_decay_), gradient_scale, stream);
}

void Sgd::write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                          const Stream& stream) {
  kernels::scale(direction, slot.m, -learning_rate * momentum_, stream);
}

}  // namespace hybrid_trainer
