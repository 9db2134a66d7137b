#include "hybrid_trainer/nn/block_stack.h"

#include <algorithm>

#include "hybrid_trainer/nn/checkpointed_module.h"

namespace hybrid_trainer {

BlockStack::BlockStack(std::vector<std::unique_ptr<ResidualBlock>> blocks)
    : blocks_(std::move(blocks)) {
  for (const auto& block : blocks_) kept_.push_back(block->kept());
}

Tensor BlockStack::forward(Tensor x, ActivationTape& tape, const Stream& stream) {
  const Recomputation again = recomputation(tape);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    tape.set_rebuild(again.rebuild(i));
    x = again.whole(i) ? CheckpointedModule(*blocks_[i]).forward(x, tape, stream)
                       : blocks_[i]->forward(x, tape, stream);
  }
  tape.set_rebuild(Rebuild::kNothing);
  return x;
}

Tensor BlockStack::backward(Tensor dy, ActivationTape& tape, const Stream& stream) {
  const Recomputation again = recomputation(tape);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    dy = again.whole(i) ? CheckpointedModule(*blocks_[i]).backward(dy, tape, stream)
                        : blocks_[i]->backward(dy, tape, stream);
  }
  return dy;
}

Tensor BlockStack::decode(Tensor x, const DecodeTexts& texts,
                          std::span<const ResidualBlock::State> states, const Pass& pass,
                          const Stream& stream) {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x = blocks_[i]->decode(x, texts, states[i], pass, stream);
  return x;
}

std::vector<ResidualBlock::State> BlockStack::make_states(TextRoom room, DType dtype,
                                                          const Stream& stream) const {
  std::vector<ResidualBlock::State> states;
  for (const auto& block : blocks_) states.push_back(block->make_state(room, dtype, stream));
  return states;
}

void BlockStack::initialize(const FirstDeviations& deviations, std::uint64_t seed,
                            const Stream& stream) {
  for (auto& block : blocks_) block->initialize(deviations, seed, stream);
}

bool BlockStack::goes_in_segments() const {
  return std::ranges::all_of(blocks_, [](const auto& block) { return block->goes_in_segments(); });
}

bool BlockStack::carries_state() const {
  return std::ranges::any_of(blocks_, [](const auto& block) { return block->carries_state(); });
}

TokenFlops BlockStack::flops(std::int64_t time) const {
  TokenFlops all{};
  for (const auto& block : blocks_) all = all + block->flops(time);
  return all;
}

double BlockStack::recomputed_flops(std::int64_t time, double share) const {
  const Recomputation again(kept_, share);
  double all = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const TokenFlops flops = blocks_[i]->flops(time);
    if (again.whole(i)) {
      all += flops.forward;
    } else if (again.rebuild(i) == Rebuild::kAttended) {
      all += flops.attended;
    }
  }
  return all;
}

std::vector<std::string> BlockStack::names() const {
  std::vector<std::string> names;
  for (const auto& block : blocks_) names.push_back(block->name());
  return names;
}

void BlockStack::visit_parameters(const ParameterVisitor& visit) {
  for (auto& block : blocks_) block->visit_parameters(visit);
}

void BlockStack::visit_linears(const LinearVisitor& visit) {
  for (auto& block : blocks_) block->visit_linears(visit);
}

void BlockStack::visit_routings(const RoutingVisitor& visit) {
  for (auto& block : blocks_) block->visit_routings(visit);
}

}  // namespace hybrid_trainer
