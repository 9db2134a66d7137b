#pragma once

#include "hybrid_trainer/kernels/group_norm.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Normalization of (B, D1..Dn, C): of each example over all places and the channels of a group. Each
/// channel has a gain, "<name>.weight" (1 at first), and a "<name>.bias" (0 at first). `epsilon` joins the
/// variance. Throws ShapeMismatch where groups do not divide the channels.
class GroupNorm final : public Module, public Rebuilder {
 public:
  struct Spec {
    std::int64_t channels = 0, groups = 1;
    float epsilon = 1e-5f;
  };

  GroupNorm(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// y from x.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  /// Numbers that forward keeps of such an input, in the pass's dtype, beside the statistics.
  double kept_numbers(const Shape& x) const { return static_cast<double>(x.elements()); }

 private:
  Tensor normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Stream& stream);
  Spec spec_;
  Parameter weight_, bias_;
};

}  // namespace hybrid_trainer
