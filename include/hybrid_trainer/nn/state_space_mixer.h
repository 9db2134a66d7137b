#pragma once

#include "hybrid_trainer/kernels/state_space_scan.h"
#include "hybrid_trainer/nn/recurrent_mixer.h"

namespace hybrid_trainer {

/// The mixer of Mamba-2: y = residual + c_proj(norm(scan(conv(x B C), dt) ⊙ silu(z))). The rows of
/// c_in are z, x, B, C and dt, in this order. Its vectors: "<name>.conv.weight" (channels, taps)
/// and "conv.bias", "A_log", "D", "dt_bias" (heads), "norm.weight". Source: Dao & Gu 2024, figure 6.
class StateSpaceMixer final : public RecurrentMixer {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::StateSpaceSpec scan{};
    std::int64_t taps = 4;  // K of the convolution
    bool biases = false;    // of both products
    bool convolution_bias = true;
    float norm_epsilon = 1e-5f;
    ProductFiles files{};
  };

  StateSpaceMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
              const Pass& pass, const Stream& stream) override;
  Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                       const Tensor& product, const StateGradients& states, const Pass& pass,
                       const Stream& stream) override;
  Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                   const Tensor& texts, const Stream& stream) override;
  Shape scan_state(std::int64_t texts) const override;
  double scan_flops() const override;
  kernels::StateSpaceSpec scan_;
  Parameter log_rate_, skip_, step_bias_;
};

}  // namespace hybrid_trainer
