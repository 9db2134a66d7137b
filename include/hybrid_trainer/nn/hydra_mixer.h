#pragma once

#include "hybrid_trainer/kernels/state_space_scan.h"
#include "hybrid_trainer/nn/recurrent_mixer.h"

namespace hybrid_trainer {

/// Mamba-2 both ways, for encoders. The mixer's matrix has a decaying lower and upper triangle, and D
/// on its diagonal. Each triangle is a scan that leaves out the token itself. y = residual +
/// c_proj(norm(scans(conv(x B C B′ C′), dt, dt′)) ⊙ silu(z)). The rows of c_in are z, x, B, C, B′, C′,
/// dt′ and dt, in this order. The convolution reads a token, taps/2 after it and the others before it. It cannot generate. Its vectors are
/// those of StateSpaceMixer, "A_log" and "dt_bias" for both ways. Source: Hwang et al. 2024, "Hydra",
/// whose D also depends on the token.
class HydraMixer final : public RecurrentMixer {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    kernels::StateSpaceSpec scan{};
    std::int64_t taps = 7;
    bool biases = false;  // of both products
    bool convolution_bias = true;
    float norm_epsilon = 1e-5f;
    ProductFiles files{};
  };

  HydraMixer(const ModuleName& name, const Spec& spec, const Stream& stream);
  bool goes_in_segments() const override { return false; }
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;

 private:
  /// What one of the scans reads.
  struct Way {
    kernels::StateSpaceSpec spec;
    Tensor values, steps;
  };
  Way forwards(const Tensor& convolved, const Tensor& product, const Stream& stream) const;
  Way backwards(const Tensor& convolved, const Tensor& product, const Stream& stream) const;
  Tensor scan(const Tensor& convolved, const Tensor& product, const States& states,
              const Pass& pass, const Stream& stream) override;
  Tensor scan_backward(const Tensor& dproduct, const Tensor& dy, const Tensor& convolved,
                       const Tensor& product, const StateGradients& states, const Pass& pass,
                       const Stream& stream) override;
  Tensor scan_step(const Tensor& states, const Tensor& convolved, const Tensor& product,
                   const Tensor& texts, const Stream& stream) override;
  Shape scan_state(std::int64_t texts) const override;
  double scan_flops() const override;
  std::int64_t keys() const { return scan_.columns() - scan_.values(); }  // of B and C
  kernels::StateSpaceSpec scan_;
  Parameter log_rate_, skip_, step_bias_;
};

}  // namespace hybrid_trainer
