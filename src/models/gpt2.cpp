#include "hybrid_trainer/models/gpt2.h"

#include <cmath>

#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/initialization.h"

namespace hybrid_trainer {

std::int64_t padded_vocabulary(std::int64_t vocabulary) {
  const std::int64_t multiple = vocabulary >= 512 ? 64 : 16;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

double gpt2_step_flops(const ModelConfig& config, std::int64_t batch, std::int64_t time) {
  const double width = static_cast<double>(config.width),
               layers = static_cast<double>(config.layers);
  const double tokens = static_cast<double>(batch * time);
  const double weights =
      layers * 12 * width * width + static_cast<double>(config.vocabulary) * width;
  const double attention =
      layers * 6 * static_cast<double>(time) * width;  // forward 2, backward 4, half of 2·T·C each
  return tokens * (6 * weights + attention);
}

void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads > 0 && config.width % config.heads != 0) {
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width));
  }
}

Gpt2::Gpt2(const ModelConfig& config, std::uint64_t seed, const Stream& stream)
    : config_(config),
      embedding_(padded_vocabulary(config.vocabulary), config.context, config.width, stream),
      final_norm_("ln_f", config.width, stream),
      head_(embedding_.tokens(), config.vocabulary) {
  const BlockShape shape{config.width, static_cast<int>(config.heads),
                         static_cast<float>(config.dropout)};
  for (int i = 0; i < config.layers; ++i)
    blocks_.push_back(std::make_unique<TransformerBlock>(i, shape, stream));

  const double deviation =
      0.02 * std::sqrt(std::max(1.0, 768.0 / static_cast<double>(config.width)));
  visit_parameters([&](Parameter& parameter) {
    if (parameter.role() == Role::kVector) return;
    initialize_normal(parameter, parameter.role() == Role::kEmbedding ? 0.02 : deviation, seed,
                      stream);
  });
  for (auto& block : blocks_) {
    const double residual_deviation =
        deviation / std::sqrt(2.0 * static_cast<double>(config.layers));
    initialize_normal(block->attention().projection().weight(), residual_deviation, seed, stream);
    initialize_normal(block->feed_forward().projection().weight(), residual_deviation, seed,
                      stream);
  }
  const Weight table = embedding_.tokens().acquire_master(stream);
  fill_zero(table.tensor().rows(config.vocabulary, embedding_.tokens().shape()[0]), stream);
  embedding_.tokens().add_contributor();  // the head
}

Tensor Gpt2::hidden(const Tensor& tokens, ActivationTape& tape, const Stream& stream) {
  if (tokens.size(1) > config_.context) {
    throw ShapeMismatch(concat("gpt2: a sequence of ", tokens.size(1), " tokens, the context is ",
                               config_.context));
  }
  Tensor x = embedding_.forward(tokens, 0, tape.pass(), stream);
  drop(x, tape.pass(), stream);
  for (auto& block : blocks_) x = block->forward(x, tape, stream);
  return final_norm_.forward(x, tape, stream);
}

Tensor Gpt2::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                     const Stream& stream) {
  const Tensor x = hidden(batch.inputs, tape, stream);
  const std::int64_t rows = batch.targets.elements();
  return head_.loss(x.view({rows, config_.width}), batch.targets.view({rows}), gradient_scale, tape,
                    stream);
}

void Gpt2::backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  Tensor dx = head_.backward(tape, stream)
                  .view({batch.inputs.size(0), batch.inputs.size(1), config_.width});
  dx = final_norm_.backward(dx, tape, stream);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block)
    dx = (*block)->backward(dx, tape, stream);
  drop(dx, tape.pass(), stream);
  embedding_.backward(dx, batch.inputs, stream);
}

/// Dropout after the embedding, site 0; the same call on the gradient drops the same elements.
void Gpt2::drop(const Tensor& x, const Pass& pass, const Stream& stream) const {
  if (config_.dropout == 0 || !pass.training) return;
  apply_dropout(x, static_cast<float>(config_.dropout), pass, 0, stream);
}

void Gpt2::visit_parameters(const ParameterVisitor& visit) {
  embedding_.visit_parameters(visit);
  for (auto& block : blocks_) block->visit_parameters(visit);
  final_norm_.visit_parameters(visit);
}

Tensor Gpt2::logits(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const Tensor x = hidden(tokens, tape, stream);
  return head_.logits(x.view({tokens.elements(), config_.width}), stream);
}

Tensor Gpt2::next_logits(const Tensor& tokens, std::int64_t position,
                         const std::vector<KeyValueCache>& caches, const Pass& pass,
                         const Stream& stream) {
  const std::int64_t batch = tokens.size(0), time = tokens.size(1), width = config_.width;
  ForwardOnlyTape tape(pass);
  Tensor x = embedding_.forward(tokens, position, pass, stream);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i]->forward_cached(x, position, caches[i], pass, stream);
  }
  require(batch == 1 || time == 1, "gpt2: prompts go through one at a time");
  const Tensor last =
      batch == 1 ? x.view({time, width}).rows(time - 1, time) : x.view({batch, width});
  return head_.logits(final_norm_.forward(last, tape, stream), stream);
}

std::vector<KeyValueCache> Gpt2::make_caches(std::int64_t batch, DType dtype,
                                             const Stream& stream) const {
  const Shape shape{batch, config_.context, config_.width};
  std::vector<KeyValueCache> caches;
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    caches.push_back({Tensor::empty(shape, dtype, MemoryKind::kActivations, stream),
                      Tensor::empty(shape, dtype, MemoryKind::kActivations, stream)});
  }
  return caches;
}

std::int64_t Gpt2::parameter_count() {
  std::int64_t count = 0;
  visit_parameters([&](Parameter& parameter) { count += parameter.elements(); });
  return count - (padded_vocabulary(config_.vocabulary) - config_.vocabulary) * config_.width;
}

}  // namespace hybrid_trainer
