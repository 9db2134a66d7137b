#pragma once

#include "hybrid_trainer/kernels/causal_convolution.h"
#include "hybrid_trainer/kernels/delta_rule_scan.h"
#include "hybrid_trainer/kernels/gated_norm.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// The mixer of Gated DeltaNet: y = residual + c_proj(norm(scan(conv(q k v), b, a)) ⊙ silu(z)), where
/// q, k, v, z, b and a are the rows of c_in, in this order, and the norm is of each head. Its vectors:
/// "<name>.conv.weight" (channels, taps), "A_log", "dt_bias" (heads), "norm.weight" (head size).
/// Source: Yang et al. 2024, "Gated Delta Networks", figure 1.
class DeltaRuleMixer final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::DeltaRuleSpec scan{};
    std::int64_t taps = 4;  // K of the convolution
    float norm_epsilon = 1e-6f;
    ProductFiles files{};  // the parts: q k v together, z, b, a
  };

  DeltaRuleMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// What the scan made of the products.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(TextRoom room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  kernels::DeltaRuleSpec scan_;
  kernels::GatedNormSpec norm_;
  Parameter convolution_, log_rate_, step_bias_, gain_;
};

}  // namespace hybrid_trainer
