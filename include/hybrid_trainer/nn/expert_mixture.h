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

/// Rows that lie together by group.
struct RowsByGroup {
  Tensor offsets;    // see kernels::GroupedRows
  TokenRows rows{};  // tokens that the rows come from, for dropout
};

/// Linear maps of one shape, each for the rows of its own group: y = x·w_gᵀ + b_g, and what adapters
/// add. Weights that stay on the device are multiplied together; others come one at a time, in the
/// order of the groups, whatever rows they have, so that all ranks acquire and complete the same.
class GroupedLinear {
 public:
  explicit GroupedLinear(std::vector<Linear> linears) : linears_(std::move(linears)) {}
  /// Which maps a product needs.
  enum class Wanted {
    kAll,
    kWithRows,  // only those of groups with rows, for which it waits for the offsets
  };
  /// x: (R, I). Returns (R, O).
  Tensor forward(const Tensor& x, const RowsByGroup& groups, Wanted wanted, const Pass& pass,
                 const Stream& stream);
  /// The gradient of x. dy: (R, O).
  Tensor backward_input(const Tensor& dy, const RowsByGroup& groups, const Pass& pass,
                        const Stream& stream);
  /// Contributes those of weights, biases and adapters. A row's share of a bias's gradient is
  /// multiplied by its factor; factors: (R) f32 or undefined. A group without rows contributes zeros.
  void contribute(const Tensor& dy, const Tensor& x, const Tensor& factors,
                  const RowsByGroup& groups, const Pass& pass, const Stream& stream);
  /// Whether any gradient but that of x is wanted.
  bool learns();
  std::vector<Linear>& linears() { return linears_; }
  const Shape& shape() const { return linears_.front().weight().shape(); }  // of a weight
  /// Of a row.
  TokenFlops flops() const { return linears_.front().flops(); }

 private:
  /// Consecutive groups.
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

/// A router's matrix and bias as they were at a time; undefined: there are none.
struct RouterCopy {
  Tensor weight{}, bias{};
  /// Of the router as it is now, in the dtype of products, so that it gives the same logits as long as
  /// the router does not change. Of none where the router does not learn, or an adapter does in its place.
  static RouterCopy of(Linear& router, const Stream& stream);
  /// x: (N, C) of the weight's dtype.
  Tensor logits(const Tensor& x, const Stream& stream) const;
};

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
                 const Stream& stream) override {
    return forward(x, residual, GroupedLinear::Wanted::kAll, tape, stream);
  }
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
