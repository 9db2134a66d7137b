#pragma once

#include "kernels/updates/optimizer_update.h"
#include "src/optim/optimizer_state.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

/// Adam with decoupled weight decay. State: f32 moments m and v. With state_bits 16 or 8,
/// parameters of at least 4,096 elements use that width. Source: Loshchilov & Hutter 2019,
/// algorithm 2; 8 bits: Dettmers et al. 2022, "8-bit optimizers via block-wise quantization".
class AdamW : public Optimizer {
 public:
  /// `by_blocks`: whether v has one element per block of a parameter.
  AdamW(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
        const StateHome& home, bool by_blocks = false);
  void begin_step(const Stream& stream) override;
  std::size_t weights() const override { return parameters_.size(); }
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override;
  void update_weights(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;

 private:
  struct Slot {
    Parameter* parameter;
    Moment m, v;
  };
  kernels::AdamWSettings settings(double learning_rate) const;
  kernels::AdamWSettings settings(const Parameter& parameter, float learning_rate,
                                  float gradient_scale) const;
  bool needs_no_copies(const Slot& slot, const Stream& stream) const;
  void require_slots() const;

  const double beta1_, beta2_, epsilon_, weight_decay_;
  const bool by_blocks_;
  std::vector<Parameter*> parameters_;
  std::vector<Slot> slots_;
  StateCopies copies_;
};

/// Adam-mini: AdamW with one v, the mean squared gradient, per block of a parameter: a head of
/// queries, keys or values, one output of any other matrix, one token, or a whole vector. AdamW's
/// learning rates also suit it. State: m in f32, and v of Parameter::blocks() elements. Source:
/// Zhang et al. 2024, "Adam-mini: use fewer learning rates to gain more".
class AdamMini final : public AdamW {
 public:
  AdamMini(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
           const StateHome& home)
      : AdamW(config, std::move(parameters), stream, home, true) {}
};

std::unique_ptr<UpdatePredictor> make_adamw_predictor(const PredictedUpdates& updates);

}  // namespace hybrid_trainer
