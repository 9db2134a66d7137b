#pragma once

#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {

/// Adafactor without a first moment. A matrix's second moments are means over its rows and its
/// columns; they decay by 1 − t^−0.8 in step t. Updates are clipped to a root mean square of 1, and
/// weight decay is decoupled. AdamW's learning rates also suit Adafactor. Momentum directions are
/// zero. State: "….rows.v" and "….columns.v"; a vector counts as a matrix of one row. Source:
/// Shazeer & Stern 2018, algorithm 4.
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
