#pragma once

#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// A normalisation at the entry of a branch.
class Norm : public Module {
 public:
  /// Adds the gradient of x to dx, which holds the gradient of the residual stream.
  virtual void backward_onto(const Tensor& dx, const Tensor& dy, ActivationTape& tape,
                             const Stream& stream) = 0;
};

}  // namespace hybrid_trainer
