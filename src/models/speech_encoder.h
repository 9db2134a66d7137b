#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/nn/speech_stem.h"
#include "src/models/block_encoder.h"

namespace hybrid_trainer {

/// Whisper's encoder of sound: its stem, blocks of residual branches, and a norm. Its batches have
/// "features", (B, 2·context, bands) f32.
class SpeechEncoder final : public BlockEncoder {
 public:
  SpeechEncoder(const Spec& spec, const Stream& stream);

  std::vector<NamedTensor> empty_sources(std::int64_t count, const Stream& stream) const override;

 private:
  Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                      const Stream& stream) override;
  void initialize_begin(const FirstDeviations& deviations, std::uint64_t seed,
                        const Stream& stream) override {
    stem_.initialize(deviations, seed, stream);
  }
  TokenFlops flops_of_begin() const override { return stem_.flops(); }
  void visit_parameters_of_begin(const ParameterVisitor& visit) override {
    stem_.visit_parameters(visit);
  }
  std::vector<std::string> parts_of_begin() const override {
    return {"encoder.conv*", "encoder.wpe.*"};
  }
  SpeechStem stem_;
};

}  // namespace hybrid_trainer
