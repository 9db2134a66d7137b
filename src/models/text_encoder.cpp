#include "src/models/text_encoder.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/dropout.h"
#include "src/models/encoder_blocks.h"

namespace hybrid_trainer {

TextEncoder::TextEncoder(const Spec& spec, const Stream& stream)
    : sizes_(spec.sizes),
      dropout_(spec.residual.dropout),
      embedding_(spec.embedding, stream),
      embedding_norm_(make_norm({"encoder.ln_e", "encoder.layernorm_embedding"},
                                spec.residual.width, spec.residual.norm, stream)),
      blocks_(encoder_blocks(sizes_.layers, spec.residual, spec.layer, stream)) {
  Parameter& positions = embedding_.positions();
  positions.set_in_files({{"encoder.embed_positions.weight", positions.shape()}});
}

Tensor TextEncoder::forward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("encoder");
  const Tensor& tokens = batch.at("source_tokens");
  if (tokens.size(1) > sizes_.context)
    throw ShapeMismatch(concat("encoder: a source of ", tokens.size(1),
                               " tokens, the encoder's context is ", sizes_.context));
  tape.set_positions(batch.at("source_positions"));
  Tensor x =
      embedding_norm_->forward(embedding_.forward(tokens, tape.pass(), stream), tape, stream);
  drop(x, tape.pass(), stream);
  return blocks_.forward(std::move(x), tape, stream);
}

void TextEncoder::backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                           const Stream& stream) {
  const MemoryLabel label("encoder");
  tape.set_positions(batch.at("source_positions"));
  Tensor dx = blocks_.backward(dy, tape, stream);
  drop(dx, tape.pass(), stream);
  dx = embedding_norm_->backward(dx, tape, stream);
  embedding_.backward(dx, batch.at("source_tokens"), tape.pass(), stream);
}

/// Before the first block; the same call on the gradient drops the same elements.
void TextEncoder::drop(const Tensor& x, const Pass& pass, const Stream& stream) const {
  if (dropout_ != 0 && pass.training) apply_dropout(x, dropout_, pass, kFirstEncoderSite, stream);
}

bool TextEncoder::trains() { return embedding_.tokens().trainable() || SourceEncoder::trains(); }

/// Without padding, so that they cost what the longest ones do.
std::vector<NamedTensor> TextEncoder::empty_sources(std::int64_t count,
                                                    const Stream& stream) const {
  const Shape places{count, sizes_.source_places()};
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

void TextEncoder::initialize(const FirstDeviations& deviations, std::uint64_t seed,
                             const Stream& stream) {
  initialize_normal(embedding_.positions(), deviations.embedding, seed, stream);
  blocks_.initialize(deviations, seed, stream);
}

TokenFlops TextEncoder::flops() const {
  const auto places = static_cast<double>(sizes_.source_places());
  const TokenFlops block = blocks_.flops(sizes_.source_places());
  return {places * block.forward, places * block.backward, places * block.attended};
}

double TextEncoder::recomputed_flops(double share) const {
  const std::int64_t places = sizes_.source_places();
  return blocks_.recomputed_flops(places, share) * static_cast<double>(places);
}

void TextEncoder::visit_parameters(const ParameterVisitor& visit) {
  embedding_.visit_parameters(visit);
  embedding_norm_->visit_parameters(visit);
  blocks_.visit_parameters(visit);
}

std::vector<std::string> TextEncoder::parts() const {
  std::vector<std::string> parts{"encoder.wpe.*"};
  for (const std::string& block : blocks_.names()) parts.push_back(block + ".*");
  return parts;
}

}  // namespace hybrid_trainer
