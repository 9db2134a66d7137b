#pragma once

#include <vector>

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "optimizer_slots.h"

namespace hybrid_trainer {

/// Stochastic gradient descent with heavy-ball momentum and decoupled weight decay. State: m for
/// each parameter, or none where the momentum is 0. Source: Sutskever et al. 2013, section 2
/// (momentum without the factor on the gradient).
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream);
  void step(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  std::int64_t steps_taken() const override { return steps_; }
  void set_steps_taken(std::int64_t steps) override { steps_ = steps; }

 private:
  bool has_momentum() const { return momentum_ > 0; }
  const double momentum_, weight_decay_;
  std::vector<Parameter*> parameters_;
  std::vector<OptimizerSlot> slots_;
  std::int64_t steps_ = 0;
};

}  // namespace hybrid_trainer
