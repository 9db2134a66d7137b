#pragma once

#include "src/optim/momentum_optimizer.h"

namespace hybrid_trainer {

/// Stochastic gradient descent with heavy-ball momentum and decoupled weight decay. State: m for
/// each parameter, or none where the momentum is 0. Source: Sutskever et al. 2013, section 2
/// (momentum without the factor on the gradient).
class Sgd final : public MomentumOptimizer {
 public:
  Sgd(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
      const StateHome& home);

 private:
  void update(const Slot& slot, const Tensor& gradient, float learning_rate, float gradient_scale,
              const Stream& stream) override;
  void write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                       const Stream& stream) override;
  const float momentum_;
  const double weight_decay_;
};

}  // namespace hybrid_trainer
