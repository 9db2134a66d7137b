#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hybrid_trainer/nn/recomputation.h"
#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer {

/// Residual blocks one after the other. What they keep for backward, Pass::recompute says: see
/// Recomputation.
class BlockStack {
 public:
  explicit BlockStack(std::vector<std::unique_ptr<ResidualBlock>> blocks);
  Tensor forward(Tensor x, ActivationTape& tape, const Stream& stream);
  /// Overwrites dy.
  Tensor backward(Tensor dy, ActivationTape& tape, const Stream& stream);
  /// `states`: of make_states. See ResidualBlock.
  Tensor decode(Tensor x, const DecodeTexts& texts, std::span<const ResidualBlock::State> states,
                const Pass& pass, const Stream& stream);
  std::vector<ResidualBlock::State> make_states(TextRoom room, DType dtype,
                                                const Stream& stream) const;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed, const Stream& stream);
  bool goes_in_segments() const;  // all blocks
  bool carries_state() const;     // any block
  /// Of a token of sequences of `time`.
  TokenFlops flops(std::int64_t time) const;
  double recomputed_flops(std::int64_t time, double share) const;
  std::vector<std::string> names() const;
  void visit_parameters(const ParameterVisitor& visit);
  void visit_routings(const RoutingVisitor& visit);
  void visit_linears(const LinearVisitor& visit);

 private:
  Recomputation recomputation(const ActivationTape& tape) const {
    return {kept_, tape.keeps() ? tape.pass().recompute : 0};
  }
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
  std::vector<BlockKept> kept_;  // by block
};

}  // namespace hybrid_trainer
