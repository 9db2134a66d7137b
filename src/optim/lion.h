#pragma once

#include "src/optim/momentum_optimizer.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// Lion: each element moves by the learning rate, in the direction that the sign of momentum and
/// gradient gives; decoupled weight decay. Wants a rate 3 to 10 times lower than AdamW's and a
/// decay as much higher. State: m for each parameter, in 16 or 8 bits with such
/// state_bits (see Moment). Source: Chen et al. 2023, "Symbolic discovery
/// of optimization algorithms", algorithm 2.
class Lion final : public MomentumOptimizer {
 public:
  Lion(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
       const StateHome& home);

 private:
  void update(const Slot& slot, const Tensor& gradient, float learning_rate, float gradient_scale,
              const Stream& stream) override;
  void write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                       const Stream& stream) override;
  const float beta1_, beta2_;
  const double weight_decay_;
};

std::unique_ptr<UpdatePredictor> make_lion_predictor(const PredictedUpdates& updates);

}  // namespace hybrid_trainer
