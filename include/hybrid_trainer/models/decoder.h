#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/recomputation.h"
#include "hybrid_trainer/nn/rotary_table.h"
#include "hybrid_trainer/nn/transformer_block.h"

namespace hybrid_trainer {

/// Standard deviations of the first weights.
struct DecoderDeviations {
  double embedding = 0.02;
  double matrix = 0.02;
  double projection = 0.02;  // of the products that end the branches
};

/// Those of GPT-2 at config.initializer_range; where that is left out, 0.02, below width 768 matrices
/// other than the tables larger by √(768/width).
DecoderDeviations usual_deviations(const ModelConfig& config);

/// What tells one decoder from another, beside the sizes of its ModelConfig.
struct DecoderSpec {
  BlockSpec block;                       // without `rotary`, which the decoder sets
  std::optional<double> rotary_theta{};  // positions by rotation instead of a table
  RotaryScaling rotary_scaling{};
  /// Letters, repeated over the layers: blocks of 'w' have `block`'s window, those of 'a' none.
  std::string windows = "w";
  std::optional<double> window_theta{};  // of the layers 'w', without scaling
  bool scaled_embedding = false;         // by √width
  float logit_cap = 0;                   // see LanguageHead
  bool tied_head = true;                 // the head shares the token table
  DecoderDeviations deviations;
};

/// A decoder: token and, unless blocks rotate, position embedding, pre-norm blocks, a final norm and a
/// head over the vocabulary. Parameters bear GPT-2's names, "lm_head.weight" an untied head's; matrices are
/// stored (outputs, inputs). The rows of token table and head are padded (see padded_vocabulary);
/// padding rows are 0 and stay 0.
class Decoder final : public LanguageModel {
 public:
  /// Weights drawn from `seed`. Throws OutOfMemory.
  Decoder(const ModelConfig& config, const DecoderSpec& spec, std::uint64_t seed,
          const Stream& stream);

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<DecodeState> make_decode_state(TextRoom room, DType dtype,
                                                 const Stream& stream) const override;
  Tensor next_logits(const Tensor& tokens, std::span<const std::int64_t> texts, DecodeState& state,
                     std::int64_t last, const Pass& pass, const Stream& stream) override;
  const ModelConfig& config() const override { return config_; }
  std::int64_t parameter_count() override;

 private:
  void initialize(const DecoderDeviations& deviations, std::uint64_t seed, const Stream& stream);
  Parameter& head_table() { return own_head_ ? *own_head_ : embedding_.tokens(); }
  Tensor hidden(const Tensor& tokens, ActivationTape& tape, const Stream& stream);
  Recomputation recomputation(const ActivationTape& tape) const;
  void drop(const Tensor& x, const Pass& pass, const Stream& stream) const;
  ModelConfig config_;
  std::optional<RotaryTable> rotary_, window_rotary_;
  BlockSpec block_;
  Embedding embedding_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  std::unique_ptr<Norm> final_norm_;
  std::optional<Parameter> own_head_;  // of an untied head
  LanguageHead head_;
};

/// Rows of the token table: a multiple of 64 from 512 tokens on, of 16 below.
std::int64_t padded_vocabulary(std::int64_t vocabulary);

/// Floating-point operations of forward and backward for one batch: 6 per token and weight of every
/// matrix product, plus causal attention's products (half of the full square).
double decoder_step_flops(const ModelConfig& config, const DecoderSpec& spec, std::int64_t batch,
                          std::int64_t time);
/// Those that backward adds where `share` is computed again (see Recomputation); activation functions
/// and norms, which are bytes rather than operations, not counted.
double decoder_recomputed_flops(const ModelConfig& config, const DecoderSpec& spec,
                                std::int64_t batch, std::int64_t time, double share, Rebuild least);

}  // namespace hybrid_trainer
