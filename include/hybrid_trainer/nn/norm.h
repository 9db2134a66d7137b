#pragma once

#include <memory>

#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Layer normalization over the last dimension C. Parameters: gain "<name>.weight" (initially 1)
/// and, if `has_bias`, "<name>.bias" (initially 0).
class LayerNorm final : public Norm, public Rebuilder {
 public:
  LayerNorm(const ModuleName& name, std::int64_t width, float epsilon, bool has_bias,
            const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass&, const Stream& stream) override {
    return normalized(source, Tensor{}, Tensor{}, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    visit(weight_);
    if (has_bias_) visit(bias_);
  }

 private:
  Tensor normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Stream& stream);
  void write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                      ActivationTape& tape, const Stream& stream) override;
  Parameter weight_, bias_;  // without has_bias, bias_ is frozen and unused
  float epsilon_;
  bool has_bias_;
};

/// RMS normalization over the last dimension C. The gain is "<name>.weight" (initially 1), or 1 +
/// "<name>.weight" (initially 0) if the spec sets one_plus.
class RmsNorm final : public Norm, public Rebuilder {
 public:
  RmsNorm(const ModuleName& name, std::int64_t width, kernels::RmsNormSpec spec,
          const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass&, const Stream& stream) override {
    return normalized(source, Tensor{}, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override { visit(weight_); }

 private:
  Tensor normalized(const Tensor& x, const Tensor& rstd, const Stream& stream);
  void write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                      ActivationTape& tape, const Stream& stream) override;
  Parameter weight_;
  kernels::RmsNormSpec spec_;
};

Parameter rms_norm_gain(const ModuleName& name, std::int64_t width, kernels::RmsNormSpec spec,
                        const Stream& stream);

enum class NormKind {
  kLayer,                  // LayerNorm
  kLayerWithoutBias,       // LayerNorm with only a gain
  kRootMeanSquare,         // RmsNorm
  kRootMeanSquareOnePlus,  // RmsNorm with gain 1 + weight
};

/// Norm of the blocks of a model.
struct NormSpec {
  NormKind kind = NormKind::kLayer;
  float epsilon = 1e-5f;
  kernels::RmsNormSpec of_root_mean_square() const {
    return {epsilon, kind == NormKind::kRootMeanSquareOnePlus};
  }
};

std::unique_ptr<Norm> make_norm(const ModuleName& name, std::int64_t width, const NormSpec& spec,
                                const Stream& stream);

/// Group normalization of (B, D1..Dn, C) over all positions and a group's channels. Parameters:
/// gain "<name>.weight" (initially 1), "<name>.bias" (initially 0). Throws ShapeMismatch unless the
/// groups divide C.
class GroupNorm final : public Module, public Rebuilder {
 public:
  struct Spec {
    std::int64_t channels = 0, groups = 1;
    float epsilon = 1e-5f;
  };

  GroupNorm(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass&, const Stream& stream) override {
    return normalized(source, Tensor{}, Tensor{}, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    visit(weight_);
    visit(bias_);
  }

 private:
  Tensor normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Stream& stream);
  Spec spec_;
  Parameter weight_, bias_;
};

}  // namespace hybrid_trainer
