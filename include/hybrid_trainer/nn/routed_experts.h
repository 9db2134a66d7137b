#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/kernels/clamped_gate.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/routing.h"
#include "hybrid_trainer/nn/grouped_linear.h"
#include "hybrid_trainer/nn/initialization.h"
#include "hybrid_trainer/nn/residual_branch.h"
#include "hybrid_trainer/nn/router_copy.h"
#include "hybrid_trainer/nn/routing_count.h"

namespace hybrid_trainer {

/// A router and its experts, gated perceptrons of one shape: y = residual + Σ w_e·c_proj_e(f(gate)·up)
/// over the experts that the router chooses for a token. All of an expert's weights exist as weights of
/// their own, "<name>.experts.<e>.c_fc.weight" (gate rows first) and ".c_proj.weight". No token is
/// dropped, so what a pass keeps does not depend on the choice.
class RoutedExperts final : public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;        // C of the residual stream
    std::int64_t inner_width = 0;  // of an expert
    kernels::RoutingSpec routing{};
    kernels::Gate gate = kernels::Gate::kSilu;
    std::optional<kernels::ClampedGate> clamped{};  // in place of the gate
    kernels::RoutingLosses losses{};
    float bias_rate = 0;  // above 0: experts are chosen by a bias, too, which moves by it
    bool router_bias = false, biases = false;
    Role role = Role::kExpert;  // of the experts' weights
  };
  /// Its modules, here and in a Hugging Face folder.
  struct Names {
    ModuleName router, expert;  // of one expert; `{}` in it stands for its number
    /// The products' weights and biases of an expert in a folder; `{}` likewise.
    std::vector<FileTensor> first, last, first_bias{}, last_bias{};
  };

  RoutedExperts(const ModuleName& name, const Spec& spec, const Names& names, const Stream& stream);
  /// x: (…, C). `wanted`: see GroupedLinear.
  Tensor forward(const Tensor& x, const Tensor& residual, GroupedLinear::Wanted wanted,
                 ActivationTape& tape, const Stream& stream);
  /// Returns the gradient of x.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream);
  /// f(gate)·up from both.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed, const Stream& stream);
  TokenFlops flops() const;
  KeptNumbers kept() const;
  void visit_parameters(const ParameterVisitor& visit);
  void visit_linears(const LinearVisitor& visit);
  /// Of backward passes, and flips of forward passes.
  RoutingCount& count() { return count_; }
  /// What is added to the router's scores where experts are chosen, (E) f32; undefined without.
  const Tensor& selection_bias() const { return selection_bias_; }
  float bias_rate() const { return spec_.bias_rate; }
  Linear& router() { return router_; }
  /// While it is defined, forward passes that count add up the tokens that go elsewhere than by it. What
  /// it multiplies are the activations of now.
  RouterCopy& router_before() { return router_before_; }

 private:
  kernels::Routing routed(const Tensor& logits, const Pass& pass, const Stream& stream) const;
  Tensor gradient_of_biases(const Tensor& dy_rows, const Tensor& offsets, const Stream& stream);
  void gate_backward(const Tensor& wide, const Tensor& dactive, const Stream& stream) const;
  std::string name_;
  Spec spec_;
  Linear router_;
  GroupedLinear first_, last_;
  RoutingCount count_;
  Tensor selection_bias_;
  RouterCopy router_before_;
};

}  // namespace hybrid_trainer
