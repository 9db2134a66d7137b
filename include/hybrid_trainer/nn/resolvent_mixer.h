#pragma once

#include "hybrid_trainer/kernels/gated_norm.h"
#include "hybrid_trainer/kernels/resolvent.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// The BK core as a mixer of an encoder: y = residual + c_proj(norm(g ⊙ silu(z))). Each token gives M
/// potentials v and a gate z, the rows of c_in in this order; g are the real and imaginary parts of
/// the diagonals of (T − z·I)⁻¹, T the second difference along the tokens with v on its diagonal. So
/// tokens know of each other through 2·M numbers, and of later ones as of earlier ones: it cannot
/// generate. Its gain is "<name>.norm.weight" (2·M).
class ResolventMixer final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;       // C of the residual stream
    std::int64_t potentials = 8;  // M
    double imaginary = 1;         // of z, above 0: the smaller, the further a token reaches
    double limit = 3;             // v is cut to [−limit, limit]
    bool biases = true;
    float norm_epsilon = 1e-5f;
    ProductFiles files{};
  };

  /// Throws Error where `imaginary` is not above 0.
  ResolventMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// The diagonals, from the first product.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  /// Throws Error: later tokens would change what was said.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Tensor normed(const Tensor& diagonals, const Tensor& product, const Stream& stream);
  std::int64_t potentials_;
  kernels::ResolventSpec resolvent_;
  kernels::GatedNormSpec norm_;
  Parameter gain_;
};

}  // namespace hybrid_trainer
