#pragma once

#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer::testing {

/// An example of a new residual branch: it needs only this pair of files and a row in the layer of
/// a family. u = in_proj(x), s(t) = decay·s(t−1) + u(t) from the start of a document, y = residual
/// + out_proj(s). The branch is recurrent, like state-space mixers. CPU and f32 only.
class DecayingSum final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C, the width of the residual stream
    std::int64_t intermediate_size = 0;
  };

  DecayingSum(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// Computes s from u.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<BranchState> make_state(DecodeCapacity room, DType dtype,
                                          const Stream& stream) const override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Parameter decay_;  // (inner width)
};

}  // namespace hybrid_trainer::testing
