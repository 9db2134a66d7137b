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
  /// Returns whether a text can return to every earlier token.
  virtual bool can_rewind() const { return true; }
  /// Returns whether a text can return to its position at the last call of keep.
  virtual bool can_keep() const { return can_rewind(); }
  /// Saves a copy of a text's state, replacing the previous one. Throws OutOfMemory.
  virtual void keep(std::int64_t /*text*/, const Stream&) {}
  /// Restores the copy of the text's state.
  virtual void restore(std::int64_t /*text*/, const Stream&) {}
  /// Replaces the state of each text i by the state of text parents[i]. All texts have `tokens`
  /// tokens. Throws Error if unsupported.
  virtual void branch(std::span<const std::int64_t> parents, std::int64_t tokens,
                      const Stream& stream);
  /// Returns whether decoding can be recorded: it never blocks, and its memory stays in place.
  virtual bool can_record() const { return false; }
};

/// Maximum number of tokens decoded together with bit-identical results.
inline constexpr std::int64_t kMaxBitExactTokens = kernels::kFewRows;

/// Capacity of a state for generation.
struct DecodeCapacity {
  std::int64_t texts = 1;
  std::int64_t tokens = 0;  // tokens per text
};

/// Assigns the tokens of a call to texts. Pass::positions contains the positions of the tokens.
struct DecodeTexts {
  /// Index of the text whose first tokens are in this call; its previous state is discarded. Used
  /// only if `each` is undefined.
  std::int64_t begun = 0;
  /// (B·T) i32, the text of each token; several texts require T = 1.
  Tensor each{};
  std::optional<std::int64_t> alone{};  // if `each` is defined: the text of all tokens, if known
};

/// Elements per token that a branch or block stores, by level of Rebuild, without statistics.
using KeptNumbers = std::array<double, kRebuilds>;

/// A residual branch of a block: y = residual + f(x) for x and y (B, T, C). The last product of f
/// adds the residual, which saves a pass over memory.
class ResidualBranch {
 public:
  virtual ~ResidualBranch() = default;
  /// Returns y. `residual`: shaped like y, or undefined.
  virtual Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Returns the gradient of x; the gradient of the residual is dy.
  virtual Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) = 0;
  /// Runs forward in generation. Override it unless tokens are independent.
  virtual Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts&, BranchState*,
                        const Pass& pass, const Stream& stream) {
    ForwardOnlyTape tape(pass);
    return forward(x, residual, tape, stream);
  }
  /// Makes the state for generation; null for a branch without state.
  virtual std::unique_ptr<BranchState> make_state(DecodeCapacity, DType, const Stream&) const {
    return nullptr;
  }
  /// Returns whether sequences can be processed in segments (Pass::carry).
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
  std::vector<std::string> first{};  // the module or its parts; empty: the name in this model
  std::string last{};
  bool transposed = false;  // see Linear::set_in_files
  /// Row orders of the modules in `first`, which may cover several parts.
  std::vector<RowGroups> orders{};
};

/// A branch that begins and ends with a product: y = residual + projection(f(first(x))). Stores the
/// result of the first product and, unless backward recomputes f, the input of the second product.
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
  TwoProductBranch(Linear first, Linear projection, Rebuild recomputed = Rebuild::kAttended)
      : first_(std::move(first)), projection_(std::move(projection)), recomputed_(recomputed) {}
  /// Returns the FLOPs of both products and of f: `of_f` in forward, times `backward` in backward.
  TokenFlops flops_with(double of_f, double backward) const {
    return first_.flops() + projection_.flops() + TokenFlops{of_f, backward * of_f, of_f};
  }
  /// Sets names and row orders in files. `rows`: number of rows of each part.
  void set_files(const ModuleName& branch, ProductFiles files, std::vector<std::int64_t> rows);
  Linear first_, projection_;

 private:
  Rebuild recomputed_;
};

using BranchMaker =
    std::function<std::unique_ptr<ResidualBranch>(const ModuleName& name, const Stream& stream)>;

template <class Branch>
BranchMaker branch_of(typename Branch::Spec spec) {
  return [spec](const ModuleName& name, const Stream& stream) -> std::unique_ptr<ResidualBranch> {
    return std::make_unique<Branch>(name, spec, stream);
  };
}

}  // namespace hybrid_trainer
