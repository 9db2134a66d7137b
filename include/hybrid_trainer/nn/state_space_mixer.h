#pragma once

#include "hybrid_trainer/kernels/causal_convolution.h"
#include "hybrid_trainer/kernels/gated_norm.h"
#include "hybrid_trainer/kernels/state_space_scan.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// The mixer of Mamba-2: y = residual + c_proj(norm(scan(conv(x B C), dt) ⊙ silu(z))), where z, x, B,
/// C and dt are the rows of c_in, in this order. Its vectors: "<name>.conv.weight" (channels, taps)
/// and "conv.bias", "A_log", "D", "dt_bias" (heads), "norm.weight". Source: Dao & Gu 2024, figure 6.
class StateSpaceMixer final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::StateSpaceSpec scan{};
    std::int64_t taps = 4;  // K of the convolution
    bool biases = false;    // of both products
    bool convolution_bias = true;
    float norm_epsilon = 1e-5f;
    ProductFiles files{};
  };

  StateSpaceMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
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
  kernels::StateSpaceSpec scan_;
  kernels::GatedNormSpec norm_;
  Parameter convolution_;
  std::optional<Parameter> convolution_bias_;
  Parameter log_rate_, skip_, step_bias_, gain_;
};

}  // namespace hybrid_trainer
