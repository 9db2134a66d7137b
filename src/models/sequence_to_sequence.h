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

/// The encoder of a sequence-to-sequence model: equal residual blocks, "encoder.h.0" and so on. Derived
/// classes make the blocks' input from a source.
class SourceEncoder {
 public:
  struct Spec {
    EncoderConfig sizes;  // resolved
    ResidualSpec residual;
    LayerSpec layer;
    std::optional<ModuleName> final_norm{};
  };

  virtual ~SourceEncoder() = default;
  /// (B, S, C) in the pass's dtype, from the batch's tensors of the source.
  Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream);
  /// Of the last forward, of this batch and on this tape; dy: the gradient of its result, which may be
  /// overwritten.
  void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape, const Stream& stream);
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
  void initialize(const FirstDeviations& deviations, std::uint64_t seed, const Stream& stream) {
    initialize_begin(deviations, seed, stream);
    blocks_.initialize(deviations, seed, stream);
  }
  /// Rows of its result for one source.
  std::int64_t places() const { return sizes_.source_places(); }
  /// Of one source.
  TokenFlops flops() const {
    return flops_of_begin() + blocks_.flops(places()) * static_cast<double>(places());
  }
  double recomputed_flops(double share) const {
    return blocks_.recomputed_flops(places(), share) * static_cast<double>(places());
  }
  /// Its own, not the decoder's token table, which it may read.
  void visit_parameters(const ParameterVisitor& visit) {
    visit_parameters_of_begin(visit);
    blocks_.visit_parameters(visit);
  }
  /// The linear maps that may get adapters.
  void visit_linears(const LinearVisitor& visit) { blocks_.visit_linears(visit); }
  /// See LanguageModel::parts.
  std::vector<std::string> parts() const;

 protected:
  SourceEncoder(const Spec& spec, const Stream& stream);
  const EncoderConfig& sizes() const { return sizes_; }

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

  EncoderConfig sizes_;
  BlockStack blocks_;
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
