#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer {

/// What a sequence-to-sequence model reads its source with, before its decoder writes.
class SourceEncoder {
 public:
  virtual ~SourceEncoder() = default;
  /// (B, S, C) in the pass's dtype, from the batch's tensors of the source.
  virtual Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  /// Of the last forward, of this batch and on this tape; dy: the gradient of its result, which may be
  /// overwritten.
  virtual void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                        const Stream& stream) = 0;
  /// Tokens of each source that the decoder may read, (B) i32; undefined: all.
  virtual Tensor lengths(const Batch& /*batch*/) const { return {}; }
  /// Whether backward has anything to do. Adapters of the decoder alone leave the encoder as it is.
  virtual bool trains() {
    bool trains = false;
    visit_parameters([&](Parameter& parameter) { trains |= parameter.trainable(); });
    return trains;
  }
  /// The tensors of so many sources, zeros: what a batch has beside tokens and targets.
  virtual std::vector<NamedTensor> empty_sources(std::int64_t count,
                                                 const Stream& stream) const = 0;
  /// Draws the first weights from the seed.
  virtual void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                          const Stream& stream) = 0;
  /// Rows of its result for one source.
  virtual std::int64_t places() const = 0;
  /// Of one source.
  virtual TokenFlops flops() const = 0;
  virtual double recomputed_flops(double share) const = 0;
  /// Its own, not the decoder's token table, which it may read.
  virtual void visit_parameters(const ParameterVisitor& visit) = 0;
  /// The linear maps that may get adapters.
  virtual void visit_linears(const LinearVisitor& visit) = 0;
  /// See LanguageModel::parts.
  virtual std::vector<std::string> parts() const = 0;
};

/// An encoder of residual blocks, "encoder.h.0" and so on, alike. Those who derive from it say what
/// makes the blocks' input of a source.
class BlockEncoder : public SourceEncoder {
 public:
  struct Spec {
    EncoderConfig sizes;  // resolved
    ResidualSpec residual;
    LayerSpec layer;
  };

  Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream) final;
  void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                const Stream& stream) final;
  std::int64_t places() const final { return sizes_.source_places(); }
  void initialize(const FirstDeviations& deviations, std::uint64_t seed,
                  const Stream& stream) final;
  TokenFlops flops() const final;
  double recomputed_flops(double share) const final;
  void visit_parameters(const ParameterVisitor& visit) final;
  void visit_linears(const LinearVisitor& visit) final { blocks_.visit_linears(visit); }
  std::vector<std::string> parts() const final;

 protected:
  BlockEncoder(const Spec& spec, const Stream& stream);
  const EncoderConfig& sizes() const { return sizes_; }
  /// Behind the blocks; there is none at first.
  void set_final_norm(std::unique_ptr<Norm> norm) { final_norm_ = std::move(norm); }

 private:
  /// The places' positions, where blocks read them.
  virtual void set_positions(const Batch& /*batch*/, ActivationTape& /*tape*/) const {}
  /// What goes into the first block, before dropout, (B, S, C).
  virtual Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  virtual void begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                              const Stream& stream) = 0;
  virtual void initialize_begin(const FirstDeviations& deviations, std::uint64_t seed,
                                const Stream& stream) = 0;
  virtual TokenFlops flops_of_begin() const { return {}; }
  virtual void visit_parameters_of_begin(const ParameterVisitor& visit) = 0;
  virtual std::vector<std::string> parts_of_begin() const = 0;
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;

  EncoderConfig sizes_;
  float dropout_;
  BlockStack blocks_;
  std::unique_ptr<Norm> final_norm_;  // or null
};

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

/// A layer of the decoder, which reads by cross attention what the encoder made of the `source`.
/// `key_bias`: whether keys have a bias.
LayerSpec sequence_decoder_layer(const ModelConfig& config,
                                 const std::shared_ptr<EncoderOutput>& source, bool key_bias);
LayerSpec sequence_encoder_layer(const ModelConfig& config, bool key_bias);

/// The config with the decoder's layers, heads and inner width where the encoder's are 0.
ModelConfig with_encoder_sizes(const ModelConfig& given);
/// Appends those of heads that do not divide the width.
void collect_head_problems(const ModelConfig& config, std::vector<std::string>& problems);

/// Keys of config.json for the decoder's sizes, to which a family adds its contexts, and for the encoder's.
void sequence_decoder_keys(ConfigKeys& keys, ModelConfig& model);
void sequence_encoder_keys(ConfigKeys& keys, ModelConfig& model);
/// Keys that are only written: first weights, and rates of dropout.
void sequence_written_keys(ConfigKeys& keys, const ModelConfig& model, bool has_classifier = false);

}  // namespace hybrid_trainer
