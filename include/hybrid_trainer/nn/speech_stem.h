#pragma once

#include "hybrid_trainer/nn/activation_function.h"
#include "hybrid_trainer/nn/convolution.h"
#include "hybrid_trainer/nn/initialization.h"

namespace hybrid_trainer {

/// What Whisper's encoder begins with: two convolutions over three frames, each with a GELU, of which the
/// second takes every other place, and positions. Positions are sines and cosines, which are not trained.
/// Parameters: "encoder.conv1", "encoder.conv2", "encoder.wpe.weight". Source: Radford et al. 2022, "Robust
/// Speech Recognition via Large-Scale Weak Supervision", section 2.2.
class SpeechStem final : public Module {
 public:
  /// `features`: numbers of a frame, `places`: half as many as there are frames, `width`: even.
  SpeechStem(std::int64_t features, std::int64_t places, std::int64_t width, const Stream& stream);
  /// (B, 2·places, features) f32 to (B, places, width) in the pass's dtype.
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Returns nothing: nobody asks for the gradient of sound.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed, const Stream& stream);
  /// Of one clip.
  TokenFlops flops() const;

 private:
  void add_positions(const Tensor& x, const Pass& pass, const Stream& stream) const;
  std::int64_t features_, places_;
  Convolution first_, second_;
  ActivationFunction gelu_{kernels::ActivationKind::kGelu};
  Parameter positions_;
};

}  // namespace hybrid_trainer
