#include "src/models/text_encoder.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

TextEncoder::TextEncoder(const Spec& spec, const Embedding::Spec& embedding, const Stream& stream)
    : BlockEncoder(spec, stream),
      embedding_(embedding, stream),
      embedding_norm_(make_norm({"encoder.ln_e", "encoder.layernorm_embedding"},
                                spec.residual.width, spec.residual.norm, stream)) {
  Parameter& positions = embedding_.positions();
  positions.set_in_files({{"encoder.embed_positions.weight", positions.shape()}});
}

void TextEncoder::set_positions(const Batch& batch, ActivationTape& tape) const {
  tape.set_positions(batch.at("source_positions"));
}

Tensor TextEncoder::begin(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const Tensor& tokens = batch.at("source_tokens");
  if (tokens.size(1) > sizes().context)
    throw ShapeMismatch(concat("encoder: a source of ", tokens.size(1),
                               " tokens, the encoder's context is ", sizes().context));
  return embedding_norm_->forward(embedding_.forward(tokens, tape.pass(), stream), tape, stream);
}

void TextEncoder::begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                                 const Stream& stream) {
  embedding_.backward(embedding_norm_->backward(dx, tape, stream), batch.at("source_tokens"),
                      tape.pass(), stream);
}

bool TextEncoder::trains() { return embedding_.tokens().trainable() || SourceEncoder::trains(); }

/// Without padding, so that they cost what the longest ones do.
std::vector<NamedTensor> TextEncoder::empty_sources(std::int64_t count,
                                                    const Stream& stream) const {
  const Shape places{count, sizes().source_places()};
  const auto zeros = [&](const Shape& shape) {
    return Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream);
  };
  const std::vector<NamedTensor> sources{{"source_tokens", zeros(places)},
                                         {"source_positions", zeros(places)},
                                         {"source_lengths", zeros({count})}};
  if (stream.device().simulated) return sources;
  const Stream host(MemoryPool::create("host"));
  const auto filled = [&](const Shape& shape) {
    return Tensor::empty(shape, DType::kI32, MemoryKind::kData, host);
  };
  const Tensor positions = filled(places), lengths = filled({count});
  for (std::int64_t i = 0; i < count; ++i) {
    auto* const row = positions.data<std::int32_t>() + i * places[1];
    std::iota(row, row + places[1], 0);
    lengths.data<std::int32_t>()[i] = static_cast<std::int32_t>(places[1]);
  }
  wait_for_copy(sources[1].tensor, positions, stream);
  wait_for_copy(sources[2].tensor, lengths, stream);
  return sources;
}

void TextEncoder::initialize_begin(const FirstDeviations& deviations, std::uint64_t seed,
                                   const Stream& stream) {
  initialize_normal(embedding_.positions(), deviations.embedding, seed, stream);
}

void TextEncoder::visit_parameters_of_begin(const ParameterVisitor& visit) {
  embedding_.visit_parameters(visit);
  embedding_norm_->visit_parameters(visit);
}

}  // namespace hybrid_trainer
