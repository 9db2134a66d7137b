#include "src/models/block_states.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

/// Whether the branches that keep anything can do what `can` asks for.
bool all_can(const std::vector<ResidualBlock::State>& blocks, bool (BranchState::*can)() const) {
  return std::ranges::all_of(blocks, [&](const ResidualBlock::State& block) {
    return std::ranges::all_of(
        block, [&](const auto& state) { return state == nullptr || ((*state).*can)(); });
  });
}

/// Calls visit(state) for each branch that keeps anything.
template <class Visit>
void for_each_state(std::vector<ResidualBlock::State>& blocks, const Visit& visit) {
  for (ResidualBlock::State& block : blocks)
    for (const auto& state : block)
      if (state) visit(*state);
}

}  // namespace

bool BlockStates::can_rewind() const { return all_can(blocks, &BranchState::can_rewind); }

bool BlockStates::can_keep() const { return all_can(blocks, &BranchState::can_keep); }

bool BlockStates::can_record() const { return all_can(blocks, &BranchState::can_record); }

void BlockStates::grow_caches(std::int64_t tokens, const Stream& stream) {
  const MemoryLabel label("keys and values");
  recording.drop();
  for_each_state(blocks, [&](BranchState& state) { state.grow(tokens, stream); });
}

void BlockStates::keep_states(std::int64_t text, const Stream& stream) {
  const MemoryLabel label("states of recurrences");
  for_each_state(blocks, [&](BranchState& state) { state.keep(text, stream); });
}

void BlockStates::return_states(std::int64_t text, const Stream& stream) {
  for_each_state(blocks, [&](BranchState& state) { state.go_back(text, stream); });
}

void BlockStates::branch_states(std::span<const std::int64_t> parents, std::int64_t tokens,
                                const Stream& stream) {
  const MemoryLabel label("keys and values");
  for_each_state(blocks, [&](BranchState& state) { state.branch(parents, tokens, stream); });
}

Tensor places_of(std::span<const std::int64_t> texts, std::int64_t time, const DecodeState& state,
                 const Stream& stream) {
  const std::int64_t rows = std::ssize(texts) * time;
  const Stream host(MemoryPool::create("host"));
  const Tensor places = Tensor::empty({2, rows}, DType::kI32, MemoryKind::kData, host);
  auto* const to = places.data<std::int32_t>();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t text = texts[static_cast<std::size_t>(row / time)];
    const std::int64_t position = state.position(text) + row % time;
    require(position > 0 && position < state.room().tokens,
            "decoder: tokens follow texts that have begun, within the state's room");
    to[row] = static_cast<std::int32_t>(text);
    to[rows + row] = static_cast<std::int32_t>(position);
  }
  return wait_for_device(places, stream);
}

}  // namespace hybrid_trainer
