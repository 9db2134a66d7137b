#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/source_encoder.h"
#include "hybrid_trainer/nn/encoder_output.h"

namespace hybrid_trainer {

/// Makes an encoder, which may read the decoder's token table.
using EncoderMaker =
    std::function<std::unique_ptr<SourceEncoder>(const std::shared_ptr<Parameter>& tokens)>;

/// A decoder that writes by what an encoder has made of a source. The decoder's layers read that by
/// cross attention; all parameters of the encoder have names that begin with "encoder.".
class SequenceToSequence final : public LanguageModel {
 public:
  /// `output`: what the cross attention of `spec` reads. Weights are drawn from `seed`. Throws
  /// OutOfMemory.
  SequenceToSequence(const ModelConfig& config, const DecoderSpec& spec,
                     const EncoderMaker& make_encoder, std::shared_ptr<EncoderOutput> output,
                     std::uint64_t seed, const Stream& stream);

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  PreferenceLoss* preference() override { return decoder_.preference(); }
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override { decoder_.visit_routings(visit); }
  double flops_of(const Shape& targets) override;
  double recomputed_flops_of(const Shape& targets, double share) override;
  std::vector<std::string> parts() const override;
  /// Of texts that follow the sources that were encoded last, as many.
  Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<DecodeState> make_decode_state(TextRoom room, DType dtype,
                                                 const Stream& stream) const override {
    return decoder_.make_decode_state(room, dtype, stream);
  }
  /// Texts that begin follow the source that was encoded last.
  Tensor next_logits(const Tensor& tokens, std::span<const std::int64_t> texts, DecodeState& state,
                     std::int64_t last, const Pass& pass, const Stream& stream) override {
    return decoder_.next_logits(tokens, texts, state, last, pass, stream);
  }
  const ModelConfig& config() const override { return decoder_.config(); }
  std::int64_t parameter_count() override;
  bool reads_sources() const override { return true; }
  Batch with_sources(Batch batch, const Stream& stream) const override;
  void encode(const Batch& sources, const Pass& pass, const Stream& stream) override;
  void set_texts_per_source(std::int64_t texts) override { output_->set_texts_per_source(texts); }

 private:
  /// Encodes the batch's sources for the decoder's layers.
  void set_output(const Batch& batch, ActivationTape& tape, const Stream& stream) {
    output_->set(encoder_->forward(batch, tape, stream), encoder_->lengths(batch));
  }
  std::shared_ptr<EncoderOutput> output_;
  Decoder decoder_;
  std::unique_ptr<SourceEncoder> encoder_;
};

}  // namespace hybrid_trainer
