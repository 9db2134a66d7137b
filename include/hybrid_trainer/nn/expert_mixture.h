#pragma once

#include <memory>
#include <optional>

#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/routed_experts.h"

namespace hybrid_trainer {

/// A mixture of experts: each token goes to those that its router chooses, and to a shared one, if there
/// is any, which may have a gate: y = residual + Σ w_e·expert_e(x) + σ(gate·x)·shared(x).
class ExpertMixture final : public ResidualBranch {
 public:
  /// Names in a Hugging Face folder, below the branch's.
  struct Files {
    std::string router = "gate";
    /// The modules of an expert's products; `{}` stands for its number. Where they have none, each is one
    /// tensor of all experts, (E, rows, columns).
    std::vector<std::string> first{"experts.{}.gate_proj", "experts.{}.up_proj"};
    std::string last = "experts.{}.down_proj";
    /// The products are no modules but matrices of all experts themselves, (E, inputs, outputs), the rows
    /// of gates and ups in turn, with biases "<name>_bias" (E, outputs).
    bool are_plain = false;
    /// Of the shared expert; beside the branch where it begins with "../".
    std::vector<std::string> shared_first{"shared_expert.gate_proj", "shared_expert.up_proj"};
    std::string shared_last = "shared_expert.down_proj", shared_gate = "shared_expert_gate";
  };
  struct Spec {
    RoutedExperts::Spec experts{};
    std::int64_t shared_width = 0;  // of the shared expert; 0: none
    bool shared_gate = false;
    Files files{};
  };

  ExpertMixture(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override;
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// Experts that no token goes to are not acquired.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  /// Without losses of its own, which are means over all of a pass's tokens.
  bool goes_in_segments() const override { return goes_in_segments_; }
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override { visit(experts_); }

 private:
  Tensor forward(const Tensor& x, const Tensor& residual, GroupedLinear::Wanted wanted,
                 ActivationTape& tape, const Stream& stream);
  bool goes_in_segments_;
  RoutedExperts experts_;
  std::unique_ptr<GatedFeedForward> shared_;  // or null
  std::unique_ptr<RoutedExperts> gated_;      // a shared one behind a gate, or null
};

}  // namespace hybrid_trainer
