#include "hybrid_trainer/models/decoder.h"

#include <cmath>

#include "hybrid_trainer/nn/checkpointed_module.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/initialization.h"

namespace hybrid_trainer {
namespace {

struct BlockStates final : DecodeState {
  std::vector<TransformerBlock::State> blocks;
};

}  // namespace

std::int64_t padded_vocabulary(std::int64_t vocabulary) {
  const std::int64_t multiple = vocabulary >= 512 ? 64 : 16;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

double decoder_step_flops(const ModelConfig& config, const DecoderSpec& spec, std::int64_t batch,
                          std::int64_t time) {
  const double width = static_cast<double>(config.width),
               attended = static_cast<double>(spec.block.heads * spec.block.head_size),
               inner = static_cast<double>(spec.block.inner_width),
               layers = static_cast<double>(config.layers);
  const double tokens = static_cast<double>(batch * time);
  const double weights = layers * (4 * width * attended + 2 * width * inner) +
                         static_cast<double>(config.vocabulary) * width;
  const double attention = layers * 6 * static_cast<double>(time) *
                           attended;  // forward 2, backward 4, half of 2·T·heads·size each
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
      embedding_(padded_vocabulary(config.vocabulary), config.context, config.width, stream),
      final_norm_("ln_f", config.width, spec.block.norm_epsilon, stream),
      own_head_(spec.tied_head ? std::optional<Parameter>()
                               : Parameter("lm_head.weight", embedding_.tokens().shape(),
                                           Role::kHead, stream)),
      head_(head_table(), config.vocabulary) {
  for (int i = 0; i < config.layers; ++i)
    blocks_.push_back(std::make_unique<TransformerBlock>(i, spec.block, stream));
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
  return final_norm_.forward(x, tape, stream);
}

Tensor Decoder::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                        const Stream& stream) {
  const Tensor x = hidden(batch.inputs, tape, stream);
  const MemoryLabel label("head");
  const std::int64_t rows = batch.targets.elements();
  return head_.loss(x.view({rows, config_.width}), batch.targets.view({rows}), gradient_scale, tape,
                    stream);
}

void Decoder::backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("head");
  Tensor dx = head_.backward(tape, stream)
                  .view({batch.inputs.size(0), batch.inputs.size(1), config_.width});
  dx = final_norm_.backward(dx, tape, stream);
  const Recomputation again = recomputation(tape);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    dx = again.whole(i) ? CheckpointedModule(*blocks_[i]).backward(dx, tape, stream)
                        : blocks_[i]->backward(dx, tape, stream);
  }
  drop(dx, tape.pass(), stream);
  embedding_.backward(dx, batch.inputs, stream);
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
  final_norm_.visit_parameters(visit);
  if (own_head_) visit(*own_head_);
}

Tensor Decoder::logits(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor x = hidden(tokens, tape, stream);
  return head_.logits(x.view({tokens.elements(), config_.width}), stream);
}

std::unique_ptr<DecodeState> Decoder::make_decode_state(std::int64_t batch, DType dtype,
                                                        const Stream& stream) const {
  auto state = std::make_unique<BlockStates>();
  for (const auto& block : blocks_)
    state->blocks.push_back(block->make_state(batch, config_.context, dtype, stream));
  return state;
}

Tensor Decoder::next_logits(const Tensor& tokens, DecodeState& state, const Pass& pass,
                            const Stream& stream) {
  const std::int64_t batch = tokens.size(0), time = tokens.size(1), width = config_.width;
  require(batch == 1 || time == 1, "decoder: prompts go through one at a time");
  const auto& states = dynamic_cast<const BlockStates&>(state);
  Tensor x = embedding_.forward(tokens, state.position(), pass, stream);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x = blocks_[i]->decode(x, state.position(), states.blocks[i], pass, stream);
  state.advance(time);
  ForwardOnlyTape tape(pass);
  const Tensor last =
      batch == 1 ? x.view({time, width}).rows(time - 1, time) : x.view({batch, width});
  return head_.logits(final_norm_.forward(last, tape, stream), stream);
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
