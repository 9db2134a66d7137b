#include "src/models/speech_encoder.h"

#include "hybrid_trainer/nn/dropout.h"
#include "src/models/encoder_blocks.h"

namespace hybrid_trainer {
SpeechEncoder::SpeechEncoder(const EncoderConfig& sizes, const ResidualSpec& residual,
                             const LayerSpec& layer, const Stream& stream)
    : sizes_(sizes),
      dropout_(residual.dropout),
      stem_(sizes.features, sizes.context, residual.width, stream),
      blocks_(encoder_blocks(sizes.layers, residual, layer, stream)),
      final_norm_(make_norm({"encoder.ln_f", "encoder.layer_norm"}, residual.width, residual.norm,
                            stream)) {}

Tensor SpeechEncoder::forward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("encoder");
  Tensor x = stem_.forward(batch.at("features"), tape, stream);
  drop(x, tape.pass(), stream);
  x = blocks_.forward(std::move(x), tape, stream);
  return final_norm_->forward(x, tape, stream);
}

void SpeechEncoder::backward(const Batch&, const Tensor& dy, ActivationTape& tape,
                             const Stream& stream) {
  const MemoryLabel label("encoder");
  const Tensor dx = blocks_.backward(final_norm_->backward(dy, tape, stream), tape, stream);
  drop(dx, tape.pass(), stream);
  stem_.backward(dx, tape, stream);
}

/// Before the first block; the same call on the gradient drops the same elements.
void SpeechEncoder::drop(const Tensor& x, const Pass& pass, const Stream& stream) const {
  if (dropout_ != 0 && pass.training) apply_dropout(x, dropout_, pass, kFirstEncoderSite, stream);
}

std::vector<NamedTensor> SpeechEncoder::empty_sources(std::int64_t count,
                                                      const Stream& stream) const {
  return {{"features", Tensor::zeros({count, 2 * sizes_.context, sizes_.features}, DType::kF32,
                                     MemoryKind::kData, stream)}};
}

void SpeechEncoder::initialize(const FirstDeviations& deviations, std::uint64_t seed,
                               const Stream& stream) {
  stem_.initialize(deviations, seed, stream);
  blocks_.initialize(deviations, seed, stream);
}

TokenFlops SpeechEncoder::flops() const {
  const auto places = static_cast<double>(sizes_.context);
  const TokenFlops block = blocks_.flops(sizes_.context);
  return stem_.flops() +
         TokenFlops{places * block.forward, places * block.backward, places * block.attended};
}

double SpeechEncoder::recomputed_flops(double share) const {
  return blocks_.recomputed_flops(sizes_.context, share) * static_cast<double>(sizes_.context);
}

void SpeechEncoder::visit_parameters(const ParameterVisitor& visit) {
  stem_.visit_parameters(visit);
  blocks_.visit_parameters(visit);
  final_norm_->visit_parameters(visit);
}

std::vector<std::string> SpeechEncoder::parts() const {
  std::vector<std::string> parts{"encoder.conv*", "encoder.wpe.*"};
  for (const std::string& block : blocks_.names()) parts.push_back(block + ".*");
  return parts;
}

}  // namespace hybrid_trainer
