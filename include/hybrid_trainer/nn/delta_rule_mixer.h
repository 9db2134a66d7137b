#pragma once

#include "hybrid_trainer/kernels/delta_rule_scan.h"
#include "hybrid_trainer/nn/recurrent_mixer.h"

namespace hybrid_trainer {

/// The mixer of Gated DeltaNet: y = residual + c_proj(norm(scan(conv(q k v), b, a)) ⊙ silu(z)). The
/// rows of c_in are q, k, v, z, b and a, in this order. The norm is of each head. Its vectors:
/// "<name>.conv.weight" (channels, taps), "A_log", "dt_bias" (heads), "norm.weight" (head size).
/// Source: Yang et al. 2024, "Gated Delta Networks", figure 1.
class DeltaRuleMixer final : public RecurrentMixer {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::DeltaRuleSpec scan{};
    std::int64_t taps = 4;  // K of the convolution
    float norm_epsilon = 1e-6f;
    ProductFiles files{};  // the parts: q k v together, z, b, a
  };

  DeltaRuleMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
              const Pass& pass, const Stream& stream) override;
  Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                       const Tensor& product, const StateGradients& states, const Pass& pass,
                       const Stream& stream) override;
  Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                   const Tensor& texts, const Stream& stream) override;
  Shape scan_state(std::int64_t texts) const override;
  double scan_flops() const override;
  kernels::DeltaRuleSpec scan_;
  Parameter log_rate_, step_bias_;
};

}  // namespace hybrid_trainer
