#pragma once

#include <memory>

#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Layer normalisation over the last dimension C with gain "<name>.weight" (1 at first) and
/// "<name>.bias" (0 at first); `epsilon` joins the variance.
class LayerNorm final : public Norm, public Rebuilder {
 public:
  LayerNorm(const ModuleName& name, std::int64_t width, float epsilon, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// y from x.
  Tensor rebuild(const Tensor& source, const Pass&, const Stream& stream) override {
    return normalized(source, Tensor{}, Tensor{}, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    visit(weight_);
    visit(bias_);
  }

 private:
  Tensor normalized(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Stream& stream);
  void write_backward(const Tensor& dx, kernels::GradientMode mode, const Tensor& dy,
                      ActivationTape& tape, const Stream& stream) override;
  Parameter weight_, bias_;
  float epsilon_;
};

/// Normalisation by the root of the mean square over the last dimension C with gain "<name>.weight"
/// (1 at first) or 1 + "<name>.weight" (0 at first).
class RmsNorm final : public Norm, public Rebuilder {
 public:
  RmsNorm(const ModuleName& name, std::int64_t width, kernels::RmsNormSpec spec,
          const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// y from x.
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

/// The gain of such a norm, as it is at first.
Parameter rms_norm_gain(const ModuleName& name, std::int64_t width, kernels::RmsNormSpec spec,
                        const Stream& stream);

enum class NormKind {
  kLayer,                  // LayerNorm
  kRootMeanSquare,         // RmsNorm
  kRootMeanSquareOnePlus,  // RmsNorm with gain 1 + weight
};

/// Which norm the blocks of a model have.
struct NormSpec {
  NormKind kind = NormKind::kLayer;
  float epsilon = 1e-5f;
  kernels::RmsNormSpec of_root_mean_square() const {
    return {epsilon, kind == NormKind::kRootMeanSquareOnePlus};
  }
};

std::unique_ptr<Norm> make_norm(const ModuleName& name, std::int64_t width, const NormSpec& spec,
                                const Stream& stream);

/// Normalization of (B, D1..Dn, C): of each example over all places and the channels of a group. Each
/// channel has a gain, "<name>.weight" (1 at first), and a "<name>.bias" (0 at first). `epsilon` joins the
/// variance. Throws ShapeMismatch where groups do not divide the channels.
class GroupNorm final : public Module, public Rebuilder {
 public:
  struct Spec {
    std::int64_t channels = 0, groups = 1;
    float epsilon = 1e-5f;
  };

  GroupNorm(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// y from x.
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
