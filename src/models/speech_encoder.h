#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/models/encoder_config.h"
#include "hybrid_trainer/models/source_encoder.h"
#include "hybrid_trainer/nn/block_stack.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/speech_stem.h"

namespace hybrid_trainer {

/// Whisper's encoder of sound: its stem, blocks of residual branches, and a norm.
class SpeechEncoder final : public SourceEncoder {
 public:
  /// `sizes`: resolved.
  SpeechEncoder(const EncoderConfig& sizes, const ResidualSpec& residual, const LayerSpec& layer,
                const Stream& stream);

  /// Of "features", (B, 2·context, bands) f32.
  Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                const Stream& stream) override;
  std::int64_t places() const override { return sizes_.context; }
  std::vector<NamedTensor> empty_sources(std::int64_t count, const Stream& stream) const override;
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) override;
  TokenFlops flops() const override;
  double recomputed_flops(double share) const override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override { blocks_.visit_linears(visit); }
  std::vector<std::string> parts() const override;

 private:
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;
  EncoderConfig sizes_;
  float dropout_;
  SpeechStem stem_;
  BlockStack blocks_;
  std::unique_ptr<Norm> final_norm_;
};

}  // namespace hybrid_trainer
