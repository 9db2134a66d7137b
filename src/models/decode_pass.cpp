#include "src/models/decode_pass.h"

#include <utility>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

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
