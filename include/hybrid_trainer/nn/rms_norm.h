#pragma once

#include <memory>
#include <string>

#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/nn/branch.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Normalisation by the root of the mean square over the last dimension C with gain "<name>.weight"
/// (1 at first) or 1 + "<name>.weight" (0 at first).
class RmsNorm final : public Norm, public Rebuilder {
 public:
  RmsNorm(const std::string& name, std::int64_t width, kernels::RmsNormSpec spec,
          const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_onto(const Tensor& dx, const Tensor& dy, ActivationTape& tape,
                     const Stream& stream) override;
  /// y from x.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override { visit(weight_); }

 private:
  Tensor normalized(const Tensor& x, const Tensor& rstd, const Stream& stream);
  void backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                ActivationTape& tape, const Stream& stream);
  Parameter weight_;
  kernels::RmsNormSpec spec_;
};

/// How a block's root-mean-square norms work.
kernels::RmsNormSpec rms_norm_spec(const BlockSpec& spec);
/// The gain of such a norm, as it is at first.
Parameter rms_norm_gain(const std::string& name, std::int64_t width, kernels::RmsNormSpec spec,
                        const Stream& stream);

/// The norm of a block's kind over its width.
std::unique_ptr<Norm> make_norm(const std::string& name, const BlockSpec& spec,
                                const Stream& stream);

}  // namespace hybrid_trainer
