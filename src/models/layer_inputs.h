#pragma once

#include "hybrid_trainer/nn/linear.h"

namespace hybrid_trainer {

/// Tensors that a decoder's layers read in addition to the residual stream. The decoder calls
/// forward before the forward of its layers, and backward after their backward.
class LayerInputs {
 public:
  virtual ~LayerInputs() = default;
  /// Computes the tensors from tokens (B, T) i32 and their embedding x (B, T, C).
  virtual void forward(const Tensor& tokens, const Tensor& x, ActivationTape& tape,
                       const Stream& stream) = 0;
  /// Adds the gradient of the embedding to dx, and frees all tensors.
  virtual void backward(const Tensor& dx, const Tensor& tokens, ActivationTape& tape,
                        const Stream& stream) = 0;
  /// Frees all tensors, after a pass without backward.
  virtual void drop() = 0;
  virtual void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                          const Stream& stream) = 0;
  virtual TokenFlops flops() const = 0;
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  virtual void visit_linears(const LinearVisitor& visit) = 0;
};

}  // namespace hybrid_trainer
