#pragma once

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/experts.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/product_rounding.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

struct RowsByGroup {
  Tensor offsets;    // see kernels::GroupedRows
  TokenRows rows{};  // tokens of the rows, for dropout
};

/// Linear maps of one shape, one for each group of rows: y = x·w_gᵀ + b_g, plus adapters.
/// Consecutive weights on the device share a kernel call. Other weights are acquired one at a time
/// in the order of the groups. This includes groups without rows, so that all ranks acquire the
/// same weights and complete the same gradients.
class GroupedLinear {
 public:
  explicit GroupedLinear(std::vector<Linear> linears) : linears_(std::move(linears)) {}
  /// Selects the groups whose weights a product acquires.
  enum class GroupSelection {
    kAll,
    kWithRows,  // only groups that have rows; blocks until the offsets are known
  };
  /// Maps x (R, I) to (R, O).
  Tensor forward(const Tensor& x, const RowsByGroup& groups, GroupSelection wanted,
                 const Pass& pass, const Stream& stream);
  /// Returns the gradient of x from dy (R, O).
  Tensor backward_input(const Tensor& dy, const RowsByGroup& groups, const Pass& pass,
                        const Stream& stream);
  /// Adds the contributions to the gradients of weights, biases and adapters. `factors`, (R) f32 or
  /// undefined, scales each row's contribution to the gradient of the biases. Groups without rows
  /// contribute zeros.
  void contribute(const Tensor& dy, const Tensor& x, const Tensor& factors,
                  const RowsByGroup& groups, const Pass& pass, const Stream& stream);
  /// Returns whether any weight, bias or adapter is trained.
  bool learns();
  std::vector<Linear>& linears() { return linears_; }
  const Shape& shape() const { return linears_.front().weight().shape(); }
  /// Returns the FLOPs per row.
  TokenFlops flops() const { return linears_.front().flops(); }

 private:
  struct Run {
    std::size_t first, count;
  };
  template <class Together>
  std::vector<Run> runs(const Together& together) const;
  template <class Visit>
  void for_weights(DType dtype, const Pass& pass, const Stream& stream, const Visit& visit);
  void contribute_weights(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                          const Pass& pass, const Stream& stream);
  Tensor operand(const Tensor& rows, Operand which, const Pass& pass, const Stream& stream) const;
  void contribute_biases(const Tensor& dy, const Tensor& factors, const Tensor& offsets,
                         const Stream& stream);
  void forward_with_rows(const Tensor& y, const Tensor& x, const Tensor& offsets,
                         const Stream& stream);
  std::vector<Linear> linears_;
};

/// A copy of a router's matrix and bias. Both are undefined if there is no copy.
struct RouterCopy {
  Tensor weight{}, bias{};
  /// Copies a router in the dtype of products, so that the copy gives the same logits as the router
  /// until the router changes. Returns an empty copy if the router is frozen or trained through an
  /// adapter.
  static RouterCopy of(Linear& router, const Stream& stream);
  /// Computes logits of x, (N, C) in the weight's dtype.
  Tensor logits(const Tensor& x, const Stream& stream) const;
};

/// A router and its experts, which are gated perceptrons of one shape: y = residual + Σ
/// w_e·c_proj_e(f(gate)·up), summed over the experts e chosen for a token. Each expert has separate
/// weights, "<name>.experts.<e>.c_fc.weight" (gate rows first) and ".c_proj.weight". No token is
/// dropped, so the size of the saved activations does not depend on the routing.
class RoutedExperts final : public Rebuilder {
 public:
  struct Spec {
    std::int64_t width = 0;              // C of the residual stream
    std::int64_t intermediate_size = 0;  // inner width of an expert
    kernels::RoutingSpec routing{};
    kernels::Gate gate = kernels::Gate::kSilu;
    std::optional<kernels::ClampedGate> clamped{};  // replaces `gate`
    kernels::RoutingLosses losses{};
    float bias_rate = 0;  // above 0: a bias, updated at this rate, affects the selection
    /// A bias, "<name>.selection_bias" (E), affects the selection. It is not trained.
    bool fixed_bias = false;
    bool router_bias = false, biases = false;
    Role role = Role::kExpert;  // role of the experts' weights
  };
  /// Module names, here and in a Hugging Face folder.
  struct Names {
    /// Names of the router and of one expert; `{}` stands for the expert's index.
    ModuleName router, expert;
    /// Weights and biases of an expert's products in a folder. `{}` stands for the expert's index.
    std::vector<FileTensor> first, last, first_bias{}, last_bias{};
    std::string fixed_bias{};
  };

  RoutedExperts(const ModuleName& name, const Spec& spec, const Names& names, const Stream& stream);
  /// Maps x (…, C). `wanted`: see GroupedLinear.
  Tensor forward(const Tensor& x, const Tensor& residual, GroupedLinear::GroupSelection wanted,
                 ActivationTape& tape, const Stream& stream);
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream);
  /// Recomputes f(gate)·up from gate and up.
  Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) override;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream);
  TokenFlops flops() const;
  KeptNumbers kept() const;
  void visit_parameters(const ParameterVisitor& visit);
  void visit_linears(const LinearVisitor& visit);
  /// Returns statistics of the routing: loads from backward passes, flips from forward passes.
  RoutingCount& count() { return count_; }
  /// Returns the bias that bias_rate updates, (E) f32, or an undefined tensor if unused.
  const Tensor& selection_bias() const { return selection_bias_; }
  float bias_rate() const { return spec_.bias_rate; }
  Linear& router() { return router_; }
  /// Returns a copy of an earlier router. If it is defined, forward passes with Pass::counts count
  /// the (token, expert) pairs that the earlier router would not have selected for the same
  /// activations.
  RouterCopy& router_before() { return router_before_; }

 private:
  kernels::Routing routed(const Tensor& logits, const Pass& pass, const Stream& stream) const;
  void leave_fixed_bias(const Stream& stream);
  Tensor gradient_of_biases(const Tensor& dy_rows, const Tensor& offsets, const Stream& stream);
  void gate_backward(const Tensor& wide, const Tensor& dactive, const Stream& stream) const;
  std::string name_;
  Spec spec_;
  Linear router_;
  GroupedLinear first_, last_;
  RoutingCount count_;
  Tensor selection_bias_;
  std::optional<Parameter> fixed_bias_;
  RouterCopy router_before_;
};

/// Mixture of experts: y = residual + Σ w_e·expert_e(x) + σ(gate·x)·shared(x). A router selects
/// experts for each token. The shared expert, which processes all tokens, and its gate are
/// optional.
class ExpertMixture final : public ResidualBranch {
 public:
  /// Names in a Hugging Face folder, relative to the branch.
  struct Files {
    std::string router = "gate", fixed_bias = "expert_bias";
    /// Modules of an expert's products; `{}` stands for its index. Names without `{}` are stacked
    /// tensors of all experts, (E, rows, columns).
    std::vector<std::string> first{"experts.{}.gate_proj", "experts.{}.up_proj"};
    std::string last = "experts.{}.down_proj";
    std::string ending = ".weight";  // ending of the products' tensor names
    /// True if the products are plain tensors of all experts, (E, inputs, outputs), with
    /// alternating gate and up rows and biases "<name>_bias" (E, outputs).
    bool are_plain = false;
    /// Modules of the shared expert. A name that begins with "../" is relative to the branch's
    /// parent.
    std::vector<std::string> shared_first{"shared_expert.gate_proj", "shared_expert.up_proj"};
    std::string shared_last = "shared_expert.down_proj", shared_gate = "shared_expert_gate";
  };
  struct Spec {
    RoutedExperts::Spec experts{};
    std::int64_t shared_width = 0;  // inner width of the shared expert; 0 if there is none
    bool shared_gate = false;
    Files files{};
  };

  ExpertMixture(const ModuleName& name, const Spec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream) override {
    return forward(x, residual, GroupedLinear::GroupSelection::kAll, tape, stream);
  }
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  /// Implements ResidualBranch::decode. Acquires only experts that receive tokens.
  Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts& texts,
                BranchState* state, const Pass& pass, const Stream& stream) override;
  /// Returns false if there are auxiliary losses, since they are means over all tokens of a pass.
  bool supports_segments() const override { return supports_segments_; }
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops(std::int64_t time) const override;
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override { visit(experts_); }

 private:
  Tensor forward(const Tensor& x, const Tensor& residual, GroupedLinear::GroupSelection wanted,
                 ActivationTape& tape, const Stream& stream);
  bool supports_segments_;
  RoutedExperts experts_;
  std::unique_ptr<GatedFeedForward> shared_;  // or null
  std::unique_ptr<RoutedExperts> gated_;      // a shared expert with a gate, or null
};

}  // namespace hybrid_trainer
