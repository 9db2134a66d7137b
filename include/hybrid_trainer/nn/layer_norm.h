#pragma once

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Layer normalisation over the last dimension C with gain "<name>.weight" (1 at first) and
/// "<name>.bias" (0 at first); `epsilon` joins the variance.
class LayerNorm final : public Norm, public Rebuilder {
 public:
  LayerNorm(const ModuleName& name, std::int64_t width, float epsilon, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// y from x.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Tensor normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Stream& stream);
  void write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                      ActivationTape& tape, const Stream& stream) override;
  Parameter weight_, bias_;
  float epsilon_;
};

}  // namespace hybrid_trainer
