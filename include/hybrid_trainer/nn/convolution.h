#pragma once

#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Applies f to each number. Has no parameters.
class ActivationFunction final : public Module, public Rebuilder {
 public:
  explicit ActivationFunction(kernels::ActivationKind kind) : kind_(kind) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::ActivationKind kind_;
};

/// Convolution over one to three dimensions, channels last: (B, D1..Dn, inputs) to (B, O1..On,
/// outputs). "<name>.weight": (outputs, taps·inputs/groups), by tap, then channel; files use
/// PyTorch's order. "<name>.bias": (outputs), optional. Throws ShapeMismatch if groups or the
/// window do not fit.
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
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    return backward(dy, true, tape, stream);
  }
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    backward(dy, false, tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    visit(weight_);
    if (bias_) visit(*bias_);
  }
  /// Draws uniform values in ±1/√(inputs of a window), PyTorch's default.
  void initialize(std::uint64_t seed, const Stream& stream);
  const Spec& spec() const { return spec_; }
  Parameter& weight() { return weight_; }
  /// Returns the bias, or null without a bias.
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  Shape output_shape(const Shape& x) const {
    return kernels::window_outputs(x, spec_.window, spec_.outputs);
  }
  /// Returns the FLOPs for an input of this shape, counting padding as data.
  TokenFlops flops(const Shape& x) const;

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

// Modules without parameters over one to three spatial dimensions, channels last.

/// Average pooling: (B, D1..Dn, C) to (B, O1..On, C).
class MeanPooling final : public Module {
 public:
  explicit MeanPooling(const kernels::Window& window,
                       kernels::Divisor divisor = kernels::Divisor::kWindow)
      : window_(window), divisor_(divisor) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::Window window_;
  kernels::Divisor divisor_;
};

/// Max pooling; stores the index of each maximum for backward, one i32 per output.
class MaxPooling final : public Module {
 public:
  explicit MaxPooling(const kernels::Window& window) : window_(window) {}
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}

 private:
  kernels::Window window_;
};

/// Global average pooling: (B, D1..Dn, C) to (B, C).
class GlobalMeanPooling final : public Module {
 public:
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor&) override {}
};

/// Upsamples (B, D1..Dn, C) by an integer factor per dimension. Has no parameters.
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

/// Turns images (B, H, W, C) or videos (B, T, H, W, C) into tokens (B, tokens, width), one per
/// patch or tubelet: a convolution whose kernel equals its stride, "<name>.weight|bias". Throws
/// ShapeMismatch if the patches do not divide a size.
class PatchEmbedding final : public Module {
 public:
  struct Spec {
    int rank = 2;  // spatial and temporal dimensions
    std::int64_t channels = 3, width = 0;
    kernels::SpatialSizes patch{1, 1, 1};
    bool bias = true;
  };

  PatchEmbedding(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    const Shape windows = projection_.output_shape(tape.take_shape());
    return projection_.backward(dy.view(windows), tape, stream);
  }
  void backward_parameters(const Tensor& dy, ActivationTape& tape, const Stream& stream) override {
    const Shape windows = projection_.output_shape(tape.take_shape());
    projection_.backward_parameters(dy.view(windows), tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    projection_.visit_parameters(visit);
  }
  Convolution& projection() { return projection_; }
  /// Returns the number of tokens per example for inputs shaped like x.
  std::int64_t tokens(const Shape& x) const;

 private:
  kernels::SpatialSizes patch_;
  Convolution projection_;
};

/// The stem of Whisper's encoder: two convolutions over three frames, each followed by a GELU, the
/// second with stride 2, then fixed sinusoidal positions. Parameters: "encoder.conv1",
/// "encoder.conv2", "encoder.wpe.weight". Source: Radford et al. 2022, "Robust Speech Recognition
/// via Large-Scale Weak Supervision", section 2.2.
class SpeechStem final : public Module {
 public:
  /// `features`: numbers per frame. `places`: half the number of frames. `width`: an even number.
  SpeechStem(std::int64_t features, std::int64_t places, std::int64_t width, const Stream& stream);
  /// Maps (B, 2·places, features) f32 to (B, places, width) in the pass's dtype.
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    second_.visit_parameters(visit);
    visit(positions_);
  }
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream);
  /// Returns the FLOPs per clip.
  TokenFlops flops() const;

 private:
  void add_positions(const Tensor& x, const Pass& pass, const Stream& stream) const;
  std::int64_t features_, places_;
  Convolution first_, second_;
  ActivationFunction gelu_{kernels::ActivationKind::kGelu};
  Parameter positions_;
};

}  // namespace hybrid_trainer
