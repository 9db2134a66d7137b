#pragma once

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// The two-layer perceptron: y = residual + c_proj(gelu(c_fc(x))).
class FeedForward final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    std::int64_t intermediate_size = 0;
    bool biases = true;
    bool exact_gelu = false;  // kernels::ActivationKind::kGelu instead of GPT-2's gelu_forward
    ProductFiles files{};
  };

  FeedForward(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  bool supports_segments() const override { return true; }

 private:
  void active_of(const Tensor& active, const Tensor& x, const Stream& stream) const;
  bool exact_gelu_;
};

/// The gated perceptron: y = residual + c_proj(f(gate)·up). One product, c_fc, computes both: its
/// weight is (2·inner, C), gate rows first.
class GatedFeedForward final : public TwoProductBranch, public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;  // C of the residual stream
    std::int64_t intermediate_size = 0;
    bool biases = true;
    kernels::Gate gate = kernels::Gate::kSilu;  // f
    ProductFiles files{};                       // the parts: gate, up
  };

  GatedFeedForward(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  bool supports_segments() const override { return true; }

 private:
  kernels::Gate gate_;
};

}  // namespace hybrid_trainer
