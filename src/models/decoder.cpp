#include "hybrid_trainer/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/nn/checkpointed_module.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/initialization.h"
#include "hybrid_trainer/nn/rms_norm.h"

namespace hybrid_trainer {
namespace {

struct BlockStates final : DecodeState {
  using DecodeState::DecodeState;
  std::vector<TransformerBlock::State> blocks;

 private:
  void grow_caches(std::int64_t tokens, const Stream& stream) override {
    const MemoryLabel label("keys and values");
    for (TransformerBlock::State& block : blocks)
      for (const auto& state : block)
        if (state) state->grow(tokens, stream);
  }
};

/// Texts and positions of tokens that follow, (2, B·T) i32: `time` of one text, or one of each.
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

bool has_window(const DecoderSpec& spec, std::int64_t layer) {
  return spec.windows[static_cast<std::size_t>(layer) % spec.windows.size()] == 'w';
}

/// Keys that a query of a block sees, on average over a sequence.
double keys_seen(const DecoderSpec& spec, std::int64_t layer, std::int64_t time) {
  const auto all = static_cast<double>(time), window = static_cast<double>(spec.block.window);
  if (window == 0 || window >= all || !has_window(spec, layer)) return all / 2;
  return window - window * window / (2 * all);
}

}  // namespace

DecoderDeviations usual_deviations(const ModelConfig& config) {
  constexpr double kUsual = 0.02;
  const double widening = std::sqrt(std::max(1.0, 768.0 / static_cast<double>(config.width)));
  const double matrix = config.initializer_range.value_or(kUsual * widening);
  return {.embedding = config.initializer_range.value_or(kUsual),
          .matrix = matrix,
          .projection = matrix / std::sqrt(2.0 * static_cast<double>(config.layers))};
}

std::int64_t padded_vocabulary(std::int64_t vocabulary) {
  const std::int64_t multiple = vocabulary >= 512 ? 64 : 16;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

double decoder_step_flops(const ModelConfig& config, const DecoderSpec& spec, std::int64_t batch,
                          std::int64_t time) {
  const double width = static_cast<double>(config.width),
               attended = static_cast<double>(spec.block.heads * spec.block.head_size),
               all_heads = static_cast<double>(spec.block.all_heads() * spec.block.head_size),
               inner = static_cast<double>((spec.block.gated ? 3 : 2) * spec.block.inner_width),
               layers = static_cast<double>(config.layers);
  const double tokens = static_cast<double>(batch * time);
  const double weights = layers * width * (all_heads + attended + inner) +
                         static_cast<double>(config.vocabulary) * width;
  double attention = 0;  // forward 2, backward 4, of 2·keys·heads·size each
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    attention += 12 * keys_seen(spec, layer, time) * attended;
  return tokens * (6 * weights + attention);
}

double decoder_recomputed_flops(const ModelConfig& config, const DecoderSpec& spec,
                                std::int64_t batch, std::int64_t time, double share,
                                Rebuild least) {
  const Recomputation again(spec.block, static_cast<std::size_t>(config.layers), share, least);
  const auto forward_flops = [&](std::size_t layers, std::int64_t width) {
    ModelConfig part = config;
    part.vocabulary = 0;
    part.layers = static_cast<std::int64_t>(layers);
    part.width = width;
    return decoder_step_flops(part, spec, batch, time) / 3;
  };
  const double products = forward_flops(again.whole_blocks(), config.width);
  const double attention_alone = forward_flops(again.attended_again() - again.whole_blocks(), 0);
  return products + attention_alone;
}

Decoder::Decoder(const ModelConfig& config, const DecoderSpec& spec, std::uint64_t seed,
                 const Stream& stream)
    : config_(config),
      block_(spec.block),
      embedding_(padded_vocabulary(config.vocabulary), spec.rotary_theta ? 0 : config.context,
                 config.width, stream, spec.scaled_embedding),
      final_norm_(make_norm("ln_f", block_, stream)),
      own_head_(spec.tied_head ? std::optional<Parameter>()
                               : Parameter("lm_head.weight", embedding_.tokens().shape(),
                                           Role::kHead, stream)),
      head_(head_table(), config.vocabulary, spec.logit_cap) {
  const std::int64_t head_size = block_.head_size;
  if (spec.rotary_theta)
    rotary_.emplace(*spec.rotary_theta, spec.rotary_scaling, config.context, head_size);
  if (spec.window_theta)
    window_rotary_.emplace(*spec.window_theta, RotaryScaling{}, config.context, head_size);
  for (int i = 0; i < config.layers; ++i) {
    BlockSpec block = block_;
    const bool window = has_window(spec, i);
    if (!window) block.window = 0;
    if (rotary_) block.rotary = window && window_rotary_ ? &*window_rotary_ : &*rotary_;
    blocks_.push_back(std::make_unique<TransformerBlock>(i, block, stream));
  }
  if (spec.tied_head) embedding_.tokens().add_contributor();  // the head
  initialize(spec.deviations, seed, stream);
}

void Decoder::initialize(const DecoderDeviations& deviations, std::uint64_t seed,
                         const Stream& stream) {
  visit_parameters([&](Parameter& parameter) {
    if (parameter.role() == Role::kVector) return;
    const bool matrix = is_matrix(parameter.role());
    initialize_normal(parameter, matrix ? deviations.matrix : deviations.embedding, seed, stream);
  });
  for (auto& block : blocks_) {
    for (Linear* projection : block->projections())
      initialize_normal(projection->weight(), deviations.projection, seed, stream);
  }
  for (Parameter* table : {&embedding_.tokens(), &head_table()}) {
    fill_zero(table->home_master().rows(config_.vocabulary, table->shape()[0]), stream);
  }
}

Tensor Decoder::hidden(const Tensor& tokens, ActivationTape& tape, const Stream& stream) {
  if (tokens.size(1) > config_.context) {
    throw ShapeMismatch(concat("decoder: a sequence of ", tokens.size(1),
                               " tokens, the context is ", config_.context));
  }
  if (rotary_) rotary_->read_documents(tape.pass().positions, stream);
  const MemoryLabel label("embedding");  // blocks name what they allocate themselves
  Tensor x = embedding_.forward(tokens, 0, tape.pass(), stream);
  drop(x, tape.pass(), stream);
  const Recomputation again = recomputation(tape);
  const Rebuild elsewhere = tape.rebuild();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    tape.set_rebuild(again.rebuild(i));
    x = again.whole(i) ? CheckpointedModule(*blocks_[i]).forward(x, tape, stream)
                       : blocks_[i]->forward(x, tape, stream);
  }
  tape.set_rebuild(elsewhere);
  const MemoryLabel norm_label("ln_f");
  return final_norm_->forward(x, tape, stream);
}

Tensor Decoder::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                        const Stream& stream) {
  const Tensor* const positions = batch.find("positions");
  tape.set_positions(positions ? *positions : Tensor());
  const Tensor x = hidden(batch.at("tokens"), tape, stream);
  const MemoryLabel label("head");
  const std::int64_t rows = batch.tokens();
  return head_.loss(x.view({rows, config_.width}), batch.at("targets").view({rows}),
                    batch.loss_divisor(), gradient_scale, tape, stream);
}

void Decoder::backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  if (rotary_) rotary_->read_documents(tape.pass().positions, stream);
  const MemoryLabel label("head");
  const Tensor& tokens = batch.at("tokens");
  Tensor dx = head_.backward(tape, stream).view({tokens.size(0), tokens.size(1), config_.width});
  dx = final_norm_->backward(dx, tape, stream);
  const Recomputation again = recomputation(tape);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    dx = again.whole(i) ? CheckpointedModule(*blocks_[i]).backward(dx, tape, stream)
                        : blocks_[i]->backward(dx, tape, stream);
  }
  drop(dx, tape.pass(), stream);
  embedding_.backward(dx, tokens, tape.pass(), stream);
}

Recomputation Decoder::recomputation(const ActivationTape& tape) const {
  const double share = tape.keeps() ? tape.pass().recompute : 0;
  return {block_, blocks_.size(), share, tape.rebuild()};
}

/// Dropout after the embedding, site 0; the same call on the gradient drops the same elements.
void Decoder::drop(const Tensor& x, const Pass& pass, const Stream& stream) const {
  if (config_.dropout == 0 || !pass.training) return;
  apply_dropout(x, static_cast<float>(config_.dropout), pass, 0, stream);
}

void Decoder::visit_parameters(const ParameterVisitor& visit) {
  embedding_.visit_parameters(visit);
  for (auto& block : blocks_) block->visit_parameters(visit);
  final_norm_->visit_parameters(visit);
  if (own_head_) visit(*own_head_);
}

void Decoder::visit_linears(const LinearVisitor& visit) {
  for (auto& block : blocks_) block->visit_linears(visit);
}

Tensor Decoder::logits(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor x = hidden(tokens, tape, stream);
  return head_.logits(x.view({tokens.elements(), config_.width}), stream);
}

std::unique_ptr<DecodeState> Decoder::make_decode_state(TextRoom room, DType dtype,
                                                        const Stream& stream) const {
  require(room.texts > 0 && room.tokens > 0 && room.tokens <= config_.context,
          "decoder: room for texts beyond the context");
  const MemoryLabel label("keys and values");
  auto state = std::make_unique<BlockStates>(room);
  for (const auto& block : blocks_) state->blocks.push_back(block->make_state(room, dtype, stream));
  return state;
}

Tensor Decoder::next_logits(const Tensor& tokens, std::span<const std::int64_t> texts,
                            DecodeState& state, std::int64_t last, const Pass& pass,
                            const Stream& stream) {
  const std::int64_t batch = tokens.size(0), time = tokens.size(1), rows = batch * time;
  require(std::ssize(texts) == batch && (batch == 1 || time == 1),
          "decoder: of several texts one token each may follow");
  require(last >= 1 && last <= time, "decoder: logits are of tokens that are given");
  const auto& states = dynamic_cast<const BlockStates&>(state);
  DecodeTexts where{.begun = texts.front()};
  Pass step = pass;
  if (batch > 1 || state.position(texts.front()) > 0) {
    const Tensor places = places_of(texts, time, state, stream);
    where.each = places.rows(0, 1).view({rows});
    step.positions = places.rows(1, 2).view({batch, time});
  }
  Tensor x = embedding_.forward(tokens, 0, step, stream);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x = blocks_[i]->decode(x, where, states.blocks[i], step, stream);
  for (const std::int64_t text : texts) state.advance(time, text);
  ForwardOnlyTape tape(pass);
  const Tensor wanted = x.view({rows, config_.width}).rows(batch > 1 ? 0 : time - last, rows);
  return head_.logits(final_norm_->forward(wanted, tape, stream), stream);
}

std::int64_t Decoder::parameter_count() {
  std::int64_t count = 0;
  visit_parameters([&](Parameter& parameter) {
    const bool padded = &parameter == &embedding_.tokens() || &parameter == &head_table();
    count += padded ? config_.vocabulary * config_.width : parameter.elements();
  });
  return count;
}

}  // namespace hybrid_trainer
