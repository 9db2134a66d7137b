#include "src/models/decode_pass.h"

#include <algorithm>
#include <exception>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

/// A number that changes with the places of the weights and `last`; 0 where a weight has none.
std::size_t dependencies_of(LossModel& model, std::int64_t last) {
  constexpr std::size_t kFactor = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio: Knuth's hash
  std::size_t all = static_cast<std::size_t>(last);
  bool stay = true;
  model.visit_parameters([&](Parameter& parameter) {
    const void* const place = parameter.storage().fixed_place();
    stay = stay && place != nullptr;
    const void* const master = stay ? parameter.storage().home_master().raw() : nullptr;
    for (const void* const at : {place, master})
      all = (all ^ reinterpret_cast<std::size_t>(at)) * kFactor;
  });
  return stay ? all | 1u : 0;
}

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

Tensor DecodeRecording::run(LossModel& model, std::int64_t last, const Batch& batch,
                            const Enqueue& enqueue, const Stream& stream) {
  const bool may_record = stream.native() != nullptr && stream.profile() == nullptr && !has_failed_;
  const std::size_t now = may_record ? dependencies_of(model, last) : 0;
  if (now != recorded_) recording_.drop();
  recorded_ = now;
  if (now == 0) return enqueue(batch, stream);
  bool is_computed = false;  // in part: states may have gone on, so it cannot be tried again
  try {
    return recording_.run(
        batch,
        [&](const Batch& given, const Stream& on) {
          is_computed = &on == &stream;
          return enqueue(given, on);
        },
        stream);
  } catch (const std::exception&) {
    if (is_computed) throw;
    recording_.drop();
    has_failed_ = true;
    return enqueue(batch, stream);
  }
}

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

Tensor DecodePass::next_logits(const Tensor& tokens, std::span<const std::int64_t> texts,
                               BlockStates& states, std::int64_t last, const Pass& pass,
                               const Stream& stream) {
  const std::int64_t batch = tokens.size(0), time = tokens.size(1);
  require(std::ssize(texts) == batch && (batch == 1 || time == 1),
          "decoder: of several texts one token each may follow");
  require(last >= 1 && last <= time, "decoder: logits are of tokens that are given");
  Tensor logits;
  if (batch == 1 && states.position(texts.front()) == 0) {
    logits = run(tokens, {.begun = texts.front()}, states, last, pass, stream);
  } else {
    const Tensor places = places_of(texts, time, states, stream);
    const Batch next({{"tokens", tokens},
                      {"texts", places.rows(0, 1).view(tokens.shape())},
                      {"positions", places.rows(1, 2).view(tokens.shape())}},
                     time);
    const bool is_many = batch == 1 && time > kMostSingly;
    logits = is_many ? many(next, texts.front(), states, last, pass, stream)
                     : following(next, states, last, pass, stream);
  }
  for (const std::int64_t text : texts) states.advance(time, text);
  return logits;
}

/// Of many tokens of one text that follow others.
Tensor DecodePass::many(const Batch& tokens, std::int64_t text, const BlockStates& states,
                        std::int64_t last, const Pass& pass, const Stream& stream) {
  Pass step = pass;
  step.positions = tokens.at("positions");
  const DecodeTexts where{.each = tokens.at("texts").view({tokens.tokens()}), .alone = text};
  return run(tokens.at("tokens"), where, states, last, step, stream);
}

/// Of tokens that follow others: positions and texts are on the device, so that it can be recorded.
Tensor DecodePass::following(const Batch& tokens, BlockStates& states, std::int64_t last,
                             const Pass& pass, const Stream& stream) {
  const auto enqueue = [&](const Batch& next, const Stream& on) {
    Pass step = pass;
    step.positions = next.at("positions");
    const DecodeTexts where{.each = next.at("texts").view({next.tokens()})};
    return run(next.at("tokens"), where, states, last, step, on);
  };
  if (!states.can_record()) return enqueue(tokens, stream);
  return states.recording.run(model_, last, tokens, enqueue, stream);
}

Tensor DecodePass::run(const Tensor& tokens, const DecodeTexts& texts, const BlockStates& states,
                       std::int64_t last, const Pass& pass, const Stream& stream) {
  const std::int64_t batch = tokens.size(0), rows = tokens.elements();
  ForwardOnlyTape tape(pass);
  Tensor x = path_.embedding.forward(tokens, pass, stream);
  if (path_.embedding_norm) x = path_.embedding_norm->forward(x, tape, stream);
  x = path_.blocks.decode(std::move(x), texts, states.blocks, pass, stream);
  const Tensor wanted = x.as_rows().rows(batch > 1 ? 0 : rows - last, rows);
  return path_.head.logits(
      path_.final_norm ? path_.final_norm->forward(wanted, tape, stream) : wanted, stream);
}

}  // namespace hybrid_trainer
