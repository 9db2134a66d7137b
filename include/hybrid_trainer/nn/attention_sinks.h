#pragma once

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// One number a head, 0 at first, which takes a part of each softmax's weight from all keys (see
/// kernels::AttentionSpec).
class AttentionSinks {
 public:
  AttentionSinks(const ModuleName& name, std::int64_t heads, const Stream& stream)
      : sinks_(name, {heads}, Role::kVector, stream) {}
  Weight acquire(const Stream& stream) const { return sinks_.acquire_master(stream); }
  /// Contributes their gradient, from what the heads attended to, y, and its gradient.
  void backward(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) { visit(sinks_); }

 private:
  Parameter sinks_;
};

}  // namespace hybrid_trainer
