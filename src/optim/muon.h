#pragma once

#include <optional>
#include <vector>

#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "optimizer_slots.h"
#include "orthogonalizer.h"

namespace hybrid_trainer {

/// Muon: tensors of two dimensions move by the orthogonalised Nesterov momentum, times 0.2·√(larger
/// side), which gives their updates the root mean square of AdamW's, so that one learning rate and
/// one decay serve both. State: m for each. Products of the orthogonalisation run in the phase's
/// precision, or f32 where bf16 is slower. Sources: Jordan et al. 2024, "Muon"; Liu et al.
/// 2025, "Muon is scalable for LLM training", eq. 4.
class Muon final : public Optimizer {
 public:
  Muon(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream);
  void step(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  std::int64_t steps_taken() const override { return steps_; }
  void set_steps_taken(std::int64_t steps) override { steps_ = steps; }

 private:
  const float momentum_;
  const double weight_decay_;
  std::vector<Parameter*> parameters_;
  std::vector<OptimizerSlot> slots_;
  std::optional<Orthogonalizer> orthogonalizer_;  // none where there is no matrix
  std::int64_t steps_ = 0;
};

}  // namespace hybrid_trainer
