#pragma once

#include <vector>

#include "hybrid_trainer/kernels/optimizer_update.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

/// Adam with decoupled weight decay. State: m and v for each parameter, in f32. Those of parameters
/// with at least 4,096 elements are bf16, rounded stochastically, with state_bits 16, and with 8
/// codes and scales ("h.0.mlp.c_fc.weight.m"
/// is then "….m.codes" and "….m.scales"). Source: Loshchilov & Hutter 2019, algorithm 2; for 8 bits
/// Dettmers et al. 2022, "8-bit optimizers via block-wise quantization".
class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream& stream,
        const Stream& home);
  void step(float learning_rate, float gradient_scale, const Stream& stream) override;
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  void visit_state(const StateVisitor& visit) override;

 private:
  struct Slot {
    Parameter* parameter;
    bool eight_bit;
    Tensor m, v;                // f32, or the codes; undefined while offloaded
    Tensor m_scales, v_scales;  // for codes
  };
  kernels::AdamWSettings settings(double learning_rate) const;
  static Slot make_slot(Parameter* parameter, std::int64_t state_bits, const Stream& stream);
  static void require_slot(const Slot& slot);

  const double beta1_, beta2_, epsilon_, weight_decay_;
  std::vector<Parameter*> parameters_;
  std::vector<Slot> slots_;
  std::shared_ptr<MemoryPool> home_;
};

}  // namespace hybrid_trainer
