#pragma once

#include <optional>
#include <vector>

#include "adamw.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "optimizer_slots.h"
#include "orthogonalizer.h"

namespace hybrid_trainer {

/// Muon: matrices that are not embeddings move by the orthogonalised Nesterov momentum, times
/// 0.2·√(larger side), which gives their updates the root mean square of AdamW's, so that one
/// learning rate and one decay serve both; all other parameters are AdamW's. State: m for each such
/// matrix; AdamW's, of state_bits, for the others. Products of the orthogonalisation run in the
/// phase's precision, or f32 where bf16 is slower. Sources: Jordan et al. 2024, "Muon"; Liu et al.
/// 2025, "Muon is scalable for LLM training", eq. 4.
class Muon final : public Optimizer {
 public:
  Muon(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream);
  void step(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;
  std::int64_t steps_taken() const override { return others_.steps_taken(); }
  void set_steps_taken(std::int64_t steps) override { others_.set_steps_taken(steps); }

 private:
  OptimizerConfig config_;
  std::vector<Parameter*> parameters_;
  std::vector<OptimizerSlot> matrices_;
  AdamW others_;
  std::optional<Orthogonalizer> orthogonalizer_;  // none where there is no matrix
};

}  // namespace hybrid_trainer
