#pragma once

#include <vector>

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "optimizer_slots.h"

namespace hybrid_trainer {

/// Adam with decoupled weight decay. State: m and v for each parameter.
/// Source: Loshchilov & Hutter 2019, algorithm 2.
class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream);
  void step(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  std::int64_t steps_taken() const override { return steps_; }
  void set_steps_taken(std::int64_t steps) override { steps_ = steps; }

 private:
  OptimizerConfig config_;
  std::vector<Parameter*> parameters_;
  std::vector<OptimizerSlot> slots_;
  std::int64_t steps_ = 0;
};

}  // namespace hybrid_trainer
