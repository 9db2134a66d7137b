#pragma once

#include <array>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/experts.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Where a router has sent its tokens since the sums were last cleared.
struct RoutingCount {
  std::string layer{};  // "h.0.mlp"
  std::int64_t experts = 0, chosen = 0;
  kernels::RoutingLosses losses{};
  Tensor sums{};   // see kernels::routing_statistics; undefined where nothing was counted
  Tensor flips{};  // see kernels::routing_flips; undefined where nothing was counted
  void add(const Tensor& logits, const kernels::Routing& routing, const Stream& stream);
  void add_flips(const kernels::Routing& routing, const kernels::Routing& before,
                 const Stream& stream);
};

class RoutedExperts;
using RoutingVisitor = std::function<void(RoutedExperts&)>;

/// What a branch keeps between tokens while texts are generated.
struct BranchState {
  virtual ~BranchState() = default;
  /// Makes room for so many tokens of each text, and keeps what it holds.
  virtual void grow(std::int64_t tokens, const Stream& stream) = 0;
  /// Whether a text may go back to any of its tokens, as where each has a place of its own. A state
  /// that sums up what it has seen can only begin anew, or go back to what it kept.
  virtual bool can_rewind() const { return true; }
  /// Whether it can come back to where a text was when it was told to keep that.
  virtual bool can_keep() const { return can_rewind(); }
  /// Keeps a copy of what it has of a text, where it could not go back without one, in place of what
  /// it kept before. Throws OutOfMemory.
  virtual void keep(std::int64_t /*text*/, const Stream&) {}
  /// Goes back to that.
  virtual void go_back(std::int64_t /*text*/, const Stream&) {}
  /// Each text i goes on from what text parents[i] has seen, `tokens` tokens. Throws Error where the
  /// state cannot do that.
  virtual void branch(std::span<const std::int64_t> parents, std::int64_t tokens,
                      const Stream& stream);
  /// Whether decoding may be recorded (see Recording) and replayed: it waits for nothing, and all
  /// that it keeps stays where it is until it grows.
  virtual bool can_record() const { return false; }
};

/// Most tokens that follow together whose results each have the bits of its coming alone.
inline constexpr std::int64_t kMostSingly = kernels::kFewRows;

/// What a state has room for.
struct TextRoom {
  std::int64_t texts = 1;
  std::int64_t tokens = 0;  // of each text
};

/// Which texts of a state tokens follow, at the positions of Pass::positions.
struct DecodeTexts {
  /// Where `each` is undefined: the one that begins with all of the tokens, whatever its state holds.
  std::int64_t begun = 0;
  Tensor each{};                        // (B·T) i32, each token's; where there are several, T = 1
  std::optional<std::int64_t> alone{};  // beside `each`: the one that all tokens are of, if told
};

/// Numbers that a branch or block keeps for a token, in the pass's dtype, by what it does not keep
/// (Rebuild). Statistics, one number a row, are left out.
using KeptNumbers = std::array<double, kRebuilds>;

/// A residual branch of a block: y = residual + f(x), x and y (B, T, C). Its last product adds the
/// residual, so that the sum takes no pass over memory of its own. What several branches share, as
/// the angles of rotations, their specs hold in common.
class ResidualBranch {
 public:
  virtual ~ResidualBranch() = default;
  /// `residual`: shape of y, or undefined.
  virtual Tensor forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                         const Stream& stream) = 0;
  /// Returns the gradient of x; that of the residual is dy.
  virtual Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) = 0;
  /// Generation: forward of tokens that follow those that `state` has seen of their texts. By
  /// default forward, for a branch that looks at each token alone.
  virtual Tensor decode(const Tensor& x, const Tensor& residual, const DecodeTexts&, BranchState*,
                        const Pass& pass, const Stream& stream) {
    ForwardOnlyTape tape(pass);
    return forward(x, residual, tape, stream);
  }
  /// Null for a branch that keeps nothing.
  virtual std::unique_ptr<BranchState> make_state(TextRoom, DType, const Stream&) const {
    return nullptr;
  }
  /// Whether sequences may go through in segments (Pass::carry): it looks at each token alone, or
  /// hands over what it carries.
  virtual bool goes_in_segments() const { return false; }
  /// Whether long sequences are to go in segments unless the settings say something else.
  virtual bool carries_state() const { return false; }
  /// Draws the first weights from the seed.
  virtual void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                          const Stream& stream) = 0;
  /// Of sequences of `time` tokens.
  virtual TokenFlops flops(std::int64_t time) const = 0;
  virtual KeptNumbers kept() const = 0;
  /// Parameters know their names here and in a Hugging Face folder.
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// The linear maps that may get adapters.
  virtual void visit_linears(const LinearVisitor& visit) = 0;
  /// What its router, if it has any, has counted.
  virtual void visit_routings(const RoutingVisitor&) {}
};

/// What the two products of a branch are called in a Hugging Face folder.
struct ProductFiles {
  std::vector<std::string> first{};  // the module, or those of its parts; none: as here
  std::string last{};
  bool transposed = false;  // see Linear::set_in_files
  /// Of the rows of `first`'s modules; one that says its rows may cover several of the branch's parts.
  std::vector<RowGroups> orders{};
};

/// A branch that begins and ends with a product: y = residual + projection(f(first(x))). Of what lies
/// between, it keeps the first product and, unless backward recomputes f, the input of the second.
class TwoProductBranch : public ResidualBranch {
 public:
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
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
  /// `recomputed`: the first level at which backward computes f again.
  TwoProductBranch(Linear first, Linear projection, Rebuild recomputed = Rebuild::kAttended)
      : first_(std::move(first)), projection_(std::move(projection)), recomputed_(recomputed) {}
  /// FLOPs of both products and of f, which kAttended computes again; backward has `backward` times
  /// those of f.
  TokenFlops flops_with(double of_f, double backward) const {
    return first_.flops() + projection_.flops() + TokenFlops{of_f, backward * of_f, of_f};
  }
  /// `rows`: of the parts, where files.orders do not say it.
  void set_files(const ModuleName& branch, ProductFiles files, std::vector<std::int64_t> rows);
  Linear first_, projection_;

 private:
  Rebuild recomputed_;
};

/// Makes a branch of a name.
using BranchMaker =
    std::function<std::unique_ptr<ResidualBranch>(const ModuleName& name, const Stream& stream)>;

/// Of a kind of branch by its spec.
template <class Branch>
BranchMaker branch_of(typename Branch::Spec spec) {
  return [spec](const ModuleName& name, const Stream& stream) -> std::unique_ptr<ResidualBranch> {
    return std::make_unique<Branch>(name, spec, stream);
  };
}

}  // namespace hybrid_trainer
