#pragma once

#include <array>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/experts.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Statistics of a router since its sums were last cleared.
struct RoutingCount {
  std::string layer{};  // "h.0.mlp"
  std::int64_t experts = 0, chosen = 0;
  kernels::RoutingLosses losses{};
  Tensor sums{};   // see kernels::routing_statistics; undefined if nothing was counted
  Tensor flips{};  // see kernels::routing_flips; undefined if nothing was counted
  void add(const Tensor& logits, const kernels::Routing& routing, const Stream& stream);
  void add_flips(const kernels::Routing& routing, const kernels::Routing& before,
                 const Stream& stream);
};

class RoutedExperts;
using RoutingVisitor = std::function<void(RoutedExperts&)>;

/// A branch's state between tokens during generation.
struct BranchState {
  virtual ~BranchState() = default;
  /// Grows to `tokens` tokens per text, preserving the contents.
  virtual void grow(std::int64_t tokens, const Stream& stream) = 0;
  /// Returns whether a text can return to any earlier token, not only restart or restore a copy.
  virtual bool can_rewind() const { return true; }
  /// Returns whether a text can return to its position at the last call of keep.
  virtual bool can_keep() const { return can_rewind(); }
  /// Replaces the saved copy of a text's state, if it needs one to return. Throws OutOfMemory.
  virtual void keep(std::int64_t /*text*/, const Stream&) {}
  /// Restores the text's kept state.
  virtual void restore(std::int64_t /*text*/, const Stream&) {}
  /// Continues each text i from parents[i], which has `tokens` tokens. Throws Error if unsupported.
  virtual void branch(std::span<const std::int64_t> parents, std::int64_t tokens,
                      const Stream& stream);
  /// Returns whether decoding can be recorded (see Recording) and replayed: it never blocks, and
  /// its memory stays in place until it grows.
  virtual bool can_record() const { return false; }
};

/// Largest number of tokens that can be decoded together with the same bits as one at a time.
inline constexpr std::int64_t kMaxBitExactTokens = kernels::kFewRows;

/// Capacity of a state.
struct DecodeCapacity {
  std::int64_t texts = 1;
  std::int64_t tokens = 0;  // of each text
};

/// The texts that tokens belong to. Pass::positions contains the positions of the tokens.
struct DecodeTexts {
  /// If `each` is undefined: the text that begins with these tokens; its old state is ignored.
  std::int64_t begun = 0;
  Tensor each{};                        // (B·T) i32, text of each token; with several texts, T = 1
  std::optional<std::int64_t> alone{};  // with `each`: the text of all tokens, if known
};

/// Numbers that a branch or block keeps per token, in the pass's dtype, by the level of
/// recomputation (Rebuild). Excludes statistics, one number per row.
using KeptNumbers = std::array<double, kRebuilds>;

/// A residual branch of a block: y = residual + f(x), x and y (B, T, C). The last product adds the
/// residual, which saves a pass over memory. Specs contain shared objects, such as rotary tables.
class ResidualBranch {
 public:
  virtual ~ResidualBranch() = default;
  /// `residual`: in the shape of y, or undefined.
  virtual Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Returns the gradient of x; the gradient of the residual is dy.
  virtual Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) = 0;
  /// Runs forward in generation, for tokens that continue the texts in `state`. By default calls
  /// forward, for branches that process each token independently.
  virtual Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts&, BranchState*,
                        const Pass& pass, const Stream& stream) {
    ForwardOnlyTape tape(pass);
    return forward(x, residual, tape, stream);
  }
  /// Makes the state for generation; null for a branch without state.
  virtual std::unique_ptr<BranchState> make_state(DecodeCapacity, DType, const Stream&) const {
    return nullptr;
  }
  /// Returns whether sequences can be processed in segments (Pass::carry): the branch processes
  /// tokens independently, or passes its state to the next segment.
  virtual bool supports_segments() const { return false; }
  /// Returns whether long sequences are processed in segments by default.
  virtual bool carries_state() const { return false; }
  virtual void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                          const Stream& stream) = 0;
  /// Returns the FLOPs per token of sequences of `time` tokens.
  virtual TokenFlops flops(std::int64_t time) const = 0;
  virtual KeptNumbers kept() const = 0;
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// Visits the linear maps that may get adapters.
  virtual void visit_linears(const LinearVisitor& visit) = 0;
  /// Visits the statistics of the router, if there is one.
  virtual void visit_routings(const RoutingVisitor&) {}
};

/// Names of a branch's two products in a Hugging Face folder.
struct ProductFiles {
  std::vector<std::string> first{};  // the module or its parts; empty: same name as here
  std::string last{};
  bool transposed = false;  // see Linear::set_in_files
  /// Row orders of `first`'s modules; an order with rows may cover several of the branch's parts.
  std::vector<RowGroups> orders{};
};

/// A branch that begins and ends with a product: y = residual + projection(f(first(x))). It keeps
/// the first product and, unless backward recomputes f, the input of the second.
class TwoProductBranch : public ResidualBranch {
 public:
  void initialize(const InitialDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override {
    initialize_normal(first_.weight(), deviations.matrix, seed, stream);
    initialize_normal(projection_.weight(), deviations.projection, seed, stream);
  }
  TokenFlops flops(std::int64_t) const override { return flops_with(0, 0); }
  KeptNumbers kept() const override;
  void visit_parameters(const ParameterVisitor& visit) override {
    first_.visit_parameters(visit);
    projection_.visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) override {
    visit(first_);
    visit(projection_);
  }

 protected:
  /// `recomputed`: the first level at which backward recomputes f.
  TwoProductBranch(Linear first, Linear projection, Rebuild recomputed = Rebuild::kAttended)
      : first_(std::move(first)), projection_(std::move(projection)), recomputed_(recomputed) {}
  /// Returns the FLOPs of both products and of f, which kAttended recomputes; backward takes
  /// `backward` times the FLOPs of f.
  TokenFlops flops_with(double of_f, double backward) const {
    return first_.flops() + projection_.flops() + TokenFlops{of_f, backward * of_f, of_f};
  }
  /// Sets names and row orders in files. `rows`: rows of each part, unless files.orders has them.
  void set_files(const ModuleName& branch, ProductFiles files, std::vector<std::int64_t> rows);
  Linear first_, projection_;

 private:
  Rebuild recomputed_;
};

using BranchMaker =
    std::function<std::unique_ptr<ResidualBranch>(const ModuleName& name, const Stream& stream)>;

/// Returns a BranchMaker from the spec of a branch.
template <class Branch>
BranchMaker branch_of(typename Branch::Spec spec) {
  return [spec](const ModuleName& name, const Stream& stream) -> std::unique_ptr<ResidualBranch> {
    return std::make_unique<Branch>(name, spec, stream);
  };
}

}  // namespace hybrid_trainer
