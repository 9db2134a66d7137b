#pragma once

#include "hybrid_trainer/kernels/upsampling.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// (B, D1..Dn, C) with whole factors as many places in each dimension. Has no parameters.
class Upsampling final : public Module {
 public:
  explicit Upsampling(const kernels::SpatialSizes& factors,
                      kernels::Interpolation interpolation = kernels::Interpolation::kNearest)
      : factors_(factors), interpolation_(interpolation) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::SpatialSizes factors_;
  kernels::Interpolation interpolation_;
};

}  // namespace hybrid_trainer
