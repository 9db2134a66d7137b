#pragma once

#include "hybrid_trainer/nn/convolution.h"

namespace hybrid_trainer {

/// Images (B, H, W, C) or videos (B, T, H, W, C), cut into patches or tubelets, as tokens (B, tokens,
/// width): a convolution whose kernel is its stride, "<name>.weight|bias". Throws ShapeMismatch where
/// patches do not divide a size.
class PatchEmbedding final : public Module {
 public:
  struct Spec {
    int rank = 2;  // dimensions of space and time
    std::int64_t channels = 3, width = 0;
    kernels::SpatialSizes patch{1, 1, 1};
    bool bias = true;
  };

  PatchEmbedding(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    projection_.visit_parameters(visit);
  }
  Convolution& projection() { return projection_; }
  /// Tokens of an example of this input.
  std::int64_t tokens(const Shape& x) const;

 private:
  kernels::SpatialSizes patch_;
  Convolution projection_;
};

}  // namespace hybrid_trainer
