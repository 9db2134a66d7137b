#pragma once

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

/// Adafactor without a first moment. Second moments of a matrix are means over its rows and
/// columns, updates are clipped to a root mean square of 1, and weight decay is decoupled. In step
/// t the moments decay by 1 − t^−0.8, independent of optimizer.betas. The learning rate is the
/// schedule's; rates that suit AdamW also suit Adafactor. Momentum directions are zero. State per
/// parameter: "….rows.v" and "….columns.v"; a vector counts as a matrix of one row, so
/// "….columns.v" contains all of its second moments. Source: Shazeer & Stern 2018, algorithm 4.
class Adafactor final : public Optimizer {
 public:
  Adafactor(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
            const StateHome& home);
  void begin_step(const Stream& stream) override;
  std::size_t weights() const override { return parameters_.size(); }
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;

 private:
  struct Slot {
    Parameter* parameter;
    Tensor rows, columns;
  };
  const double weight_decay_;
  std::vector<Parameter*> parameters_;
  std::vector<Slot> slots_;
  StateCopies copies_;
};

}  // namespace hybrid_trainer
