#pragma once

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// The short convolution over columns of a mixer's first product. Parameters: "<name>.weight"
/// (channels, taps) and optionally "<name>.bias".
class TokenConvolution {
 public:
  /// Settings. The convolution reads columns [first, first + channels) of the input.
  struct Spec {
    std::int64_t first = 0;
    std::int64_t channels = 0;
    std::int64_t taps = 4;
    bool bias = false;
    kernels::ConvolutionSpec sum{};
  };

  TokenConvolution(const ModuleName& name, const Spec& spec, const Stream& stream);
  /// Maps x (B, T, any) to (B, T, channels). before: (B, taps − 1, channels), or undefined.
  Tensor forward(const Tensor& x, const Tensor& before, const Pass& pass, const Stream& stream);
  /// Writes dx's columns, the parameters' gradients and, if defined, dbefore.
  void backward(const Tensor& dx, const Tensor& dbefore, const Tensor& dy, const Tensor& x,
                const Tensor& before, const Pass& pass, const Stream& stream);
  /// Adds drows to dx. drows: gradient of the rows that `remember` has stored for each sequence.
  void remember_backward(const Tensor& dx, const Tensor& drows, const Stream& stream) const;
  /// Runs the convolution for one token of each text and updates the state. Returns (N, channels).
  /// x: (N, any). state: state_shape. texts: (N) i32.
  Tensor step(const Tensor& state, const Tensor& x, const Tensor& texts, const Stream& stream);
  /// Runs the convolution for the next tokens: x is (1, T, any) for one text or (B, 1, any) for
  /// several. `states`, of state_shape, contains the last rows of the texts.
  Tensor decode(const Tensor& x, const DecodeTexts& texts, const Tensor& states, const Pass& pass,
                const Stream& stream);
  /// Sets `state`, (1, taps − 1, channels), to the last rows of x, (1, T, any).
  void remember(const Tensor& state, const Tensor& x, const Stream& stream) const;
  Shape state_shape(std::int64_t texts) const { return {texts, spec_.taps - 1, spec_.channels}; }
  void initialize(std::uint64_t seed, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) {
    visit(weight_);
    if (bias_) visit(*bias_);
  }

 private:
  Weight acquire_bias(const Stream& stream) const {
    return bias_ ? bias_->acquire_master(stream) : Weight{};
  }
  Spec spec_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace hybrid_trainer
