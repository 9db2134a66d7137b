#pragma once

#include <optional>

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Convolution over one to three dimensions of space, channels last: (B, D1..Dn, inputs) to (B, O1..On,
/// outputs). weight: (outputs, taps·inputs/groups), a row's taps outermost, in files as PyTorch's
/// (outputs, inputs/groups, k1..kn); bias: (outputs) or none; named "<name>.weight|bias". Throws
/// ShapeMismatch where groups do not divide, and in forward where the window does not fit.
class Convolution final : public Module {
 public:
  struct Spec {
    int rank = 2;  // n
    std::int64_t inputs = 0, outputs = 0;
    kernels::Window window{};
    std::int64_t groups = 1;
    bool bias = true;
  };

  Convolution(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  /// Uniform numbers up to 1/√(inputs of a window), as PyTorch's first ones.
  void initialize(std::uint64_t seed, const Stream& stream);
  const Spec& spec() const { return spec_; }
  Parameter& weight() { return weight_; }
  /// Null where there is none.
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  Shape output_shape(const Shape& x) const {
    return kernels::window_outputs(x, spec_.window, spec_.outputs);
  }
  /// Operations for an input of this shape, padding counted as places.
  TokenFlops flops(const Shape& x) const;
  /// Numbers that forward keeps of such an input, in the pass's dtype.
  double kept_numbers(const Shape& x) const;

 private:
  void check_input(const Tensor& x) const;
  Tensor backward(const Tensor& dy, bool wants_input, ActivationTape& tape, const Stream& stream);
  void write_parameter_gradients(GradientContribution& dweight, GradientContribution& dbias,
                                 const Tensor& dy, const Tensor& product_dy, const Tensor& x,
                                 const Pass& pass, const Stream& stream);
  Spec spec_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace hybrid_trainer
