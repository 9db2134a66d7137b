#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/cross_attention.h"

namespace hybrid_trainer {

/// Encoder of residual blocks "encoder.h.0", …. Derived classes compute their input from a source.
class SourceEncoder {
 public:
  struct Spec {
    EncoderConfig sizes;  // resolved
    ResidualSpec residual;
    LayerSpec layer;
    std::optional<ModuleName> final_norm{};
  };

  virtual ~SourceEncoder() = default;
  /// Encodes the source tensors of a batch. Returns (B, S, C) in the pass's dtype.
  Tensor forward(const Batch& batch, ActivationTape& tape, const Stream& stream);
  /// Runs backward for the last forward of this batch on this tape. May overwrite dy.
  void backward(const Batch& batch, const Tensor& dy, ActivationTape& tape, const Stream& stream);
  /// Returns the number of tokens per source that the decoder attends to, (B) i32; undefined: all.
  virtual Tensor lengths(const Batch& /*batch*/) const { return {}; }
  virtual bool trains() {
    bool trains = false;
    visit_parameters([&](Parameter& parameter) { trains |= parameter.trainable(); });
    return trains;
  }
  /// Returns the source tensors of a batch for `count` examples, filled with zeros.
  virtual std::vector<NamedTensor> empty_sources(std::int64_t count,
                                                 const Stream& stream) const = 0;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream) {
    initialize_begin(deviations, seed, stream);
    blocks_.initialize(deviations, seed, stream);
  }
  std::int64_t places() const { return sizes_.source_places(); }
  TokenFlops flops() const {
    return flops_of_begin() + blocks_.flops(places()) * static_cast<double>(places());
  }
  double recomputed_flops(double share) const {
    return blocks_.recomputed_flops(places(), share) * static_cast<double>(places());
  }
  /// Skips the decoder's token table, which the encoder may read.
  void visit_parameters(const ParameterVisitor& visit) {
    visit_parameters_of_begin(visit);
    blocks_.visit_parameters(visit);
  }
  void visit_linears(const LinearVisitor& visit) { blocks_.visit_linears(visit); }
  std::vector<std::string> parts() const;

 protected:
  SourceEncoder(const Spec& spec, const Stream& stream);
  const EncoderConfig& sizes() const { return sizes_; }

 private:
  /// Sets the positions of the source on the tape, if blocks read them.
  virtual void set_positions(const Batch& /*batch*/, ActivationTape& /*tape*/) const {}
  /// Computes the input of the first block, before dropout, (B, S, C).
  virtual Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  virtual void begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                              const Stream& stream) = 0;
  virtual void initialize_begin(const InitialDeviations& deviations, std::uint64_t seed,
                                const Stream& stream) = 0;
  virtual TokenFlops flops_of_begin() const { return {}; }
  virtual void visit_parameters_of_begin(const ParameterVisitor& visit) = 0;
  virtual std::vector<std::string> parts_of_begin() const = 0;

  EncoderConfig sizes_;
  BlockStack blocks_;
};

/// Makes a decoder layer with cross attention to `source`. `key_bias`: whether keys have a bias.
LayerSpec sequence_decoder_layer(const ModelConfig& config,
                                 const std::shared_ptr<EncoderOutput>& source, bool key_bias);
LayerSpec sequence_encoder_layer(const ModelConfig& config, bool key_bias);

ModelConfig with_encoder_sizes(const ModelConfig& given);
/// Appends a problem for each number of heads that does not divide the width.
void collect_head_problems(const ModelConfig& config, std::vector<std::string>& problems);

void sequence_decoder_keys(ConfigKeys& keys, ModelConfig& model);
void sequence_encoder_keys(ConfigKeys& keys, ModelConfig& model);
/// Writes keys whose values in files are ignored, such as initialization and dropout.
void sequence_written_keys(ConfigKeys& keys, const ModelConfig& model, bool has_classifier = false);

}  // namespace hybrid_trainer
