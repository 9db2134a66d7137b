#include "src/models/speech_encoder.h"

namespace hybrid_trainer {

SpeechEncoder::SpeechEncoder(const Spec& spec, const Stream& stream)
    : BlockEncoder(spec, stream),
      stem_(spec.sizes.features, spec.sizes.context, spec.residual.width, stream) {
  set_final_norm(make_norm({"encoder.ln_f", "encoder.layer_norm"}, spec.residual.width,
                           spec.residual.norm, stream));
}

Tensor SpeechEncoder::begin(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  return stem_.forward(batch.at("features"), tape, stream);
}

void SpeechEncoder::begin_backward(const Batch&, const Tensor& dx, ActivationTape& tape,
                                   const Stream& stream) {
  stem_.backward(dx, tape, stream);
}

std::vector<NamedTensor> SpeechEncoder::empty_sources(std::int64_t count,
                                                      const Stream& stream) const {
  return {{"features", Tensor::zeros({count, 2 * sizes().context, sizes().features}, DType::kF32,
                                     MemoryKind::kData, stream)}};
}

}  // namespace hybrid_trainer
