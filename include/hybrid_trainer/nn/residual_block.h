#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// One branch of a layer. Pre-norm: x += scale·dropout(last_norm(branch(norm(x)))). Post-norm: x =
/// norm(x + scale·dropout(branch(x))).
struct BranchSpec {
  ModuleName name;  // relative to the block, such as "attn"
  /// Relative to the block, such as "ln_1"; "": no norm (only pre-norm).
  ModuleName norm;
  std::optional<ModuleName> last_norm{};  // norm of the branch's result, if any
  BranchMaker make;
};

using LayerSpec = std::vector<BranchSpec>;

/// Settings of the residual stream, shared by all blocks of a model.
struct ResidualSpec {
  std::int64_t width = 0;  // C
  NormSpec norm{};
  float dropout = 0;       // applied to the result of each branch before it is added
  float scale = 1;         // factor of that result
  bool post_norm = false;  // norms after the sums; branches then have no last_norm
};

/// Elements that a block stores per token at each level of Rebuild. The last entry applies if it
/// stores only its input.
using BlockKept = std::array<double, kRebuilds + 1>;

/// A block of residual branches, with norms before the branches or after the sums (post-norm).
class ResidualBlock final : public Module {
 public:
  using State = std::vector<std::unique_ptr<BranchState>>;

  /// `first_site`: dropout site of the first branch. The other branches use the next sites.
  ResidualBlock(const ModuleName& name, const ResidualSpec& residual, const LayerSpec& layer,
                std::uint64_t first_site, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Overwrites dy with the gradient of x, summed in place.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor decode(const Tensor& x, const DecodeTexts& texts, const State& state, const Pass& pass,
                const Stream& stream);
  const std::string& name() const { return name_; }  // "h.0"
  State make_state(DecodeCapacity room, DType dtype, const Stream& stream) const;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream) {
    for (const Part& part : parts_) part.branch->initialize(deviations, seed, stream);
  }
  bool supports_segments() const;
  bool carries_state() const;
  TokenFlops flops(std::int64_t time) const;
  BlockKept kept() const;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override {
    for (const Part& part : parts_) part.branch->visit_linears(visit);
  }
  void visit_routings(const RoutingVisitor& visit) {
    for (const Part& part : parts_) part.branch->visit_routings(visit);
  }

 private:
  struct Part {
    std::string name;            // "h.0.attn", the label of its memory
    std::unique_ptr<Norm> norm;  // or null
    std::unique_ptr<ResidualBranch> branch;
    std::unique_ptr<Norm> last_norm;  // or null
    std::uint64_t dropout_site;
  };
  template <class Branch>
  Tensor forward(const Part& part, const Tensor& x, ActivationTape& tape, const Stream& stream,
                 const Branch& branch);
  Tensor added(const Part& part, const Tensor& x, const Tensor& y, bool is_separate,
               const Pass& pass, const Stream& stream) const;
  Tensor before_sum(const Part& part, const Tensor& dsum, const Pass& pass,
                    const Stream& stream) const;
  Tensor backward(const Part& part, const Tensor& dx, ActivationTape& tape, const Stream& stream);
  bool drops(const Pass& pass) const { return residual_.dropout != 0 && pass.training; }
  std::string name_;
  ResidualSpec residual_;
  std::vector<Part> parts_;
};

/// Distributes recomputation over the blocks of a stack, to save `share` of the activation memory
/// other than the blocks' inputs. First drops outputs of activation functions, then of norms, then
/// of attention, and finally whole blocks, each from the first block on, since backward frees later
/// blocks earlier.
class Recomputation {
 public:
  Recomputation(std::span<const BlockKept> blocks, double share);
  Rebuild rebuild(std::size_t block) const;
  /// Returns whether the block stores only its input (CheckpointedModule).
  bool whole(std::size_t block) const { return block < counts_.back(); }

 private:
  static constexpr std::size_t kLevels = kRebuilds + 1;  // the last level is whole blocks
  std::array<std::size_t, kLevels> counts_{};
};

/// Residual blocks with optional input dropout and final norm. Pass::recompute sets the share of
/// activations that backward recomputes.
class BlockStack {
 public:
  struct Spec {
    ModuleName name;  // blocks are "<name>.0", "<name>.1", …
    std::int64_t layers = 0;
    std::function<LayerSpec(std::int64_t block)> layer{};
    ResidualSpec residual{};
    std::uint64_t first_site = 0;        // first dropout site; sites are numbered in order of use
    bool applies_input_dropout = false;  // applies dropout to the input
    std::optional<ModuleName> final_norm{};
  };
  /// Throws OutOfMemory.
  BlockStack(const Spec& spec, const Stream& stream);
  Tensor forward(Tensor x, ActivationTape& tape, const Stream& stream);
  /// Returns the gradient of x. Overwrites dy.
  Tensor backward(Tensor dy, ActivationTape& tape, const Stream& stream);
  /// Runs the blocks for generation, without the final norm.
  Tensor decode(Tensor x, const DecodeTexts& texts, std::span<const ResidualBlock::State> states,
                const Pass& pass, const Stream& stream);
  /// Applies the final norm, if there is one.
  Tensor normed(const Tensor& x, ActivationTape& tape, const Stream& stream);
  std::vector<ResidualBlock::State> make_states(DecodeCapacity room, DType dtype,
                                                const Stream& stream) const;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream) {
    for (auto& block : blocks_) block->initialize(deviations, seed, stream);
  }
  bool supports_segments() const;  // whether all blocks support them
  bool carries_state() const;      // whether any block carries state
  /// Returns the FLOPs per token of sequences of `time` tokens.
  TokenFlops flops(std::int64_t time) const;
  double recomputed_flops(std::int64_t time, double share) const;
  /// Returns a pattern of weight names for each block, such as "h.0.*".
  std::vector<std::string> patterns() const;
  bool has_final_norm() const { return final_norm_ != nullptr; }
  void visit_parameters(const ParameterVisitor& visit) {
    for (auto& block : blocks_) block->visit_parameters(visit);
    if (final_norm_) final_norm_->visit_parameters(visit);
  }
  void visit_routings(const RoutingVisitor& visit) {
    for (auto& block : blocks_) block->visit_routings(visit);
  }
  void visit_linears(const LinearVisitor& visit) {
    for (auto& block : blocks_) block->visit_linears(visit);
  }

 private:
  Recomputation recomputation(const ActivationTape& tape) const {
    return {kept_, tape.keeps() ? tape.pass().recompute : 0};
  }
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;
  float input_dropout_;
  std::uint64_t input_site_;
  std::string norm_name_;
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
  std::vector<BlockKept> kept_;       // indexed by block
  std::unique_ptr<Norm> final_norm_;  // or null
};

}  // namespace hybrid_trainer
