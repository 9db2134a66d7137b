#pragma once

#include <array>
#include <memory>

#include "hybrid_trainer/nn/branch.h"
#include "hybrid_trainer/nn/module.h"

namespace hybrid_trainer {

/// Pre-norm transformer block: attention and feed-forward, each behind a norm of its own ("ln_1",
/// "ln_2") and, where the spec says so, before another ("ln_3", "ln_4").
class TransformerBlock final : public Module {
 public:
  /// What its branches keep while a text is generated.
  using State = std::array<std::unique_ptr<BranchState>, 2>;

  TransformerBlock(int index, const BlockSpec& spec, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Overwrites dy: the residual stream's gradient is summed in place.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor decode(const Tensor& x, const DecodeTexts& texts, const State& state, const Pass& pass,
                const Stream& stream);
  State make_state(TextRoom room, DType dtype, const Stream& stream) const;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit);
  /// The products that end the branches.
  std::array<Linear*, 2> projections();

 private:
  struct Part {
    std::string name;  // "h.0.attn", what memory is accounted for
    std::unique_ptr<Norm> norm;
    std::unique_ptr<Branch> branch;
    std::unique_ptr<Norm> last_norm;  // of the branch's result, or null
    std::uint64_t dropout_site;
  };
  Tensor forward(const Part& part, const Tensor& x, const Tensor& residual, ActivationTape& tape,
                 const Stream& stream);
  void backward(const Part& part, const Tensor& dx, const Tensor& dy, ActivationTape& tape,
                const Stream& stream);
  bool drops(const Pass& pass) const { return spec_.dropout != 0 && pass.training; }
  BlockSpec spec_;
  std::array<Part, 2> parts_;
};

}  // namespace hybrid_trainer
