#pragma once

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// One branch of a layer: x += scale·dropout(last_norm(branch(norm(x)))), or post-norm
/// x = norm(x + scale·dropout(branch(x))).
struct BranchSpec {
  ModuleName name;                        // in the block: "attn"
  ModuleName norm;                        // likewise: "ln_1"
  std::optional<ModuleName> last_norm{};  // of the branch's result; none: as it is
  BranchMaker make;
};

/// What a layer consists of, in the order in which x passes.
using LayerSpec = std::vector<BranchSpec>;

/// The residual stream, which all blocks of a model share.
struct ResidualSpec {
  std::int64_t width = 0;  // C
  NormSpec norm{};
  float dropout = 0;       // on each branch's result before it joins the stream
  float scale = 1;         // of that result
  bool post_norm = false;  // norms follow the sums; branches then have no last_norm
};

/// By what a block does not keep: the levels of Rebuild, and last its input alone.
using BlockKept = std::array<double, kRebuilds + 1>;

/// A block of residual branches, with each norm before its branch, or behind its sum (post-norm).
class ResidualBlock final : public Module {
 public:
  /// What its branches keep while a text is generated.
  using State = std::vector<std::unique_ptr<BranchState>>;

  /// `first_site`: of the dropout's random numbers, one for each branch.
  ResidualBlock(const ModuleName& name, const ResidualSpec& residual, const LayerSpec& layer,
                std::uint64_t first_site, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Overwrites dy: the residual stream's gradient is summed in place.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor decode(const Tensor& x, const DecodeTexts& texts, const State& state, const Pass& pass,
                const Stream& stream);
  const std::string& name() const { return name_; }  // "h.0"
  State make_state(TextRoom room, DType dtype, const Stream& stream) const;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed, const Stream& stream) {
    for (const Part& part : parts_) part.branch->initialize(deviations, seed, stream);
  }
  /// See ResidualBranch.
  bool goes_in_segments() const;
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
    std::string name;  // "h.0.attn", what memory is accounted for
    std::unique_ptr<Norm> norm;
    std::unique_ptr<ResidualBranch> branch;
    std::unique_ptr<Norm> last_norm;  // or null
    std::uint64_t dropout_site;
  };
  template <class Branch>
  Tensor forward(const Part& part, const Tensor& x, ActivationTape& tape, const Stream& stream,
                 const Branch& branch);
  /// x + scale·dropout(y), which may lie over y.
  Tensor added(const Part& part, const Tensor& x, const Tensor& y, bool is_apart, const Pass& pass,
               const Stream& stream) const;
  /// The gradient of y, from that of the sum.
  Tensor before_sum(const Part& part, const Tensor& dsum, const Pass& pass,
                    const Stream& stream) const;
  Tensor backward(const Part& part, const Tensor& dx, ActivationTape& tape, const Stream& stream);
  bool drops(const Pass& pass) const { return residual_.dropout != 0 && pass.training; }
  std::string name_;
  ResidualSpec residual_;
  std::vector<Part> parts_;
};

/// What the blocks of a stack go without so that `share` of what all of them would save by keeping
/// their inputs alone is saved: first the activation function's outputs, then the norms', then
/// attention's, last whole blocks; each from the first block on, as what the later ones keep is free
/// again when backward comes to those.
class Recomputation {
 public:
  Recomputation(std::span<const BlockKept> blocks, double share);
  Rebuild rebuild(std::size_t block) const;
  /// The block keeps its input alone (CheckpointedModule).
  bool whole(std::size_t block) const { return block < counts_.back(); }

 private:
  static constexpr std::size_t kLevels = kRebuilds + 1;  // the last: whole blocks
  std::array<std::size_t, kLevels> counts_{};  // by level, the first blocks that are at least there
};

/// Residual blocks in sequence, with optional dropout of their input and an optional final norm, as
/// decoders, encoders and the stacks of networks share them. Pass::recompute sets how much blocks keep
/// for backward (see Recomputation).
class BlockStack {
 public:
  struct Spec {
    ModuleName name;  // blocks are "<name>.0", "<name>.1", …
    std::int64_t layers = 0;
    std::function<LayerSpec(std::int64_t block)> layer{};
    ResidualSpec residual{};
    std::uint64_t first_site = 0;  // of the dropout's random numbers, in the order of their use
    bool drops_input = false;      // as branches drop their results
    std::optional<ModuleName> final_norm{};
  };
  /// Throws OutOfMemory.
  BlockStack(const Spec& spec, const Stream& stream);
  Tensor forward(Tensor x, ActivationTape& tape, const Stream& stream);
  /// Overwrites dy.
  Tensor backward(Tensor dy, ActivationTape& tape, const Stream& stream);
  /// Runs the blocks without the final norm, which not all tokens need. `states`: of make_states.
  Tensor decode(Tensor x, const DecodeTexts& texts, std::span<const ResidualBlock::State> states,
                const Pass& pass, const Stream& stream);
  /// Applies the final norm, if there is one.
  Tensor normed(const Tensor& x, ActivationTape& tape, const Stream& stream);
  std::vector<ResidualBlock::State> make_states(TextRoom room, DType dtype,
                                                const Stream& stream) const;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed, const Stream& stream) {
    for (auto& block : blocks_) block->initialize(deviations, seed, stream);
  }
  bool goes_in_segments() const;  // all blocks
  bool carries_state() const;     // any block
  /// Of a token of sequences of `time`.
  TokenFlops flops(std::int64_t time) const;
  double recomputed_flops(std::int64_t time, double share) const;
  /// Patterns of the names of each block's weights, "h.0.*".
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
  std::vector<BlockKept> kept_;       // by block
  std::unique_ptr<Norm> final_norm_;  // or null
};

}  // namespace hybrid_trainer
