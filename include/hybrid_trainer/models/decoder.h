#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/head_transform.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/positional_encoding.h"
#include "hybrid_trainer/nn/residual_block.h"
#include "hybrid_trainer/nn/segmented_pass.h"
#include "hybrid_trainer/nn/text_head.h"

namespace hybrid_trainer {

/// Returns GPT-2's standard deviations from config.initializer_range, by default 0.02, multiplied
/// by √(768/width) in matrices of models narrower than 768.
InitialDeviations default_deviations(const ModelConfig& config);

class EncoderOutput;
class LayerInputs;
class SourceEncoder;

using EncoderMaker =
    std::function<std::unique_ptr<SourceEncoder>(const std::shared_ptr<Parameter>& tokens)>;

/// Architecture of a decoder, in addition to the sizes in its ModelConfig.
struct DecoderSpec {
  ResidualSpec residual;
  /// Kinds of layers by letter. `pattern` is a string of these letters, repeated over the layers.
  std::map<char, LayerSpec> kinds;
  std::string pattern;
  std::int64_t positions = 0;  // rows of the position table; 0: no table
  std::vector<std::shared_ptr<RotaryTable>> rotary{};
  double embedding_scale = 1;       // factor of the embedding, see scales_only_tokens
  bool scales_only_tokens = false;  // see Embedding::Spec
  std::int64_t first_position = 0;
  float logit_cap = 0;          // see LanguageHead
  double logit_scale = 1;       // factor of the logits before the cap
  bool tied_head = true;        // shares the token table with the head
  bool embedding_norm = false;  // adds a norm of the embedding, "ln_e"
  bool final_norm = true;       // adds a norm of the last layer's result
  /// Bias of the logits: none, read from files but frozen, or trained.
  enum class Bias { kNone, kFrozen, kTrained } head_bias = Bias::kNone;
  std::optional<HeadTransform::Spec> head_transform{};  // transform before the head, if any
  std::int64_t token_types = 0;                         // rows of the type table; 0: none
  InitialDeviations deviations;
  /// Head of a model that pools texts. The head's transform applies only if the model has classes.
  TextHead::Spec text_head{};
  struct Files {
    std::string layers = "h", tokens = "wte", positions = "wpe", types = "wtype",
                final_norm = "ln_f", embedding_norm = "ln_e", head_bias = "lm_head.bias";
  } files{};
  /// Makes the encoder for cross attention, with parameters "encoder.…"; null: none.
  EncoderMaker make_encoder{};
  std::shared_ptr<EncoderOutput> source{};
  std::shared_ptr<LayerInputs> layer_inputs{};  // or null
};

/// Returns a layer's kind from a pattern of letters, repeated over the layers.
inline char kind_of_layer(const std::string& pattern, std::int64_t layer) {
  return pattern[static_cast<std::size_t>(layer) % pattern.size()];
}

/// Appends the problems of the pattern in the config key `key`.
void collect_pattern_problems(const std::string& key, const std::string& pattern,
                              const std::vector<LetterWord>& letters, std::int64_t layers,
                              std::vector<std::string>& problems);

/// Copies the config's block pattern, if any, to `attention`.
void set_block_pattern(Attention::Spec& attention, const ModelConfig& config);

void collect_block_pattern_problems(const ModelConfig& config, std::vector<std::string>& problems);

/// A decoder: token embedding, optional position table, residual blocks, optional final norm, and a
/// head unless ModelConfig::language_head is false. Bidirectional, it is an encoder of texts and
/// cannot generate. With a source encoder, logits and new texts use the sources of the last
/// `encode`. Parameters have GPT-2's names, plus "lm_head.weight" for an untied head; matrices are
/// (outputs, inputs). Padding rows of tables stay 0. The context limits each text, not a row of
/// several texts.
class Decoder final : public LanguageModel, private SegmentSteps {
 public:
  /// Initializes weights from `seed`. Throws OutOfMemory.
  Decoder(const ModelConfig& config, const DecoderSpec& spec, std::uint64_t seed,
          const Stream& stream);
  ~Decoder() override;

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override;
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  Tensor hidden_states(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void hidden_backward(const Batch& batch, Tensor gradient, ActivationTape& tape,
                       const Stream& stream) override;
  PreferenceLoss* preference() override { return text_head_ ? nullptr : &preference_; }
  TextHead* text_head() override { return text_head_.get(); }
  bool supports_segments() const override {
    return !embedding_.has_positions() && blocks_.supports_segments();
  }
  bool carries_state() const override { return blocks_.carries_state(); }
  std::int64_t contributions(const Batch& batch, std::int64_t segment) const override {
    return text_head_ || batch.find("halves") ? 1 : segments(batch.tokens_per_example(), segment);
  }
  void visit_parameters(const ParameterVisitor& visit) override;
  void visit_linears(const LinearVisitor& visit) override;
  void visit_routings(const RoutingVisitor& visit) override { blocks_.visit_routings(visit); }
  /// Counts 6 FLOPs per token and weight of matrix products, or 4 if the weight is frozen, and the
  /// branches' other operations, such as the causal half of attention.
  double flops_of(const Shape& tokens, std::int64_t targets) override;
  double recomputed_flops_of(const Shape& tokens, double share) override;
  std::vector<std::string> parts() const override;
  Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream) override;
  Tensor text_outputs(const Batch& batch, const Pass& pass, const Stream& stream) override;
  std::unique_ptr<DecodeState> make_decode_state(DecodeCapacity room, DType dtype,
                                                 const Stream& stream) const override;
  Tensor next_logits(const Tensor& tokens, std::span<const std::int64_t> texts, DecodeState& state,
                     std::int64_t last, const Pass& pass, const Stream& stream) override;
  const ModelConfig& config() const override { return config_; }
  std::int64_t parameter_count() override;
  bool reads_sources() const override { return encoder_ != nullptr; }
  Batch with_sources(Batch batch, const Stream& stream) const override;
  void encode(const Batch& sources, const Pass& pass, const Stream& stream) override;
  void set_texts_per_source(std::int64_t texts) override;

 private:
  class States;
  void initialize(const InitialDeviations& deviations, std::uint64_t seed, const Stream& stream);
  Parameter& head_table() { return own_head_ ? *own_head_ : embedding_.tokens(); }
  std::int64_t segments(std::int64_t time, std::int64_t length) const;
  bool uses_segments(const Batch& batch, const Pass& pass) const;
  void read_source(const Batch& batch, ActivationTape& tape, const Stream& stream);
  void read_trained_source(const Batch& batch, ActivationTape& tape, const Stream& stream);
  void source_backward(const Batch& batch, ActivationTape& tape, const Stream& stream);
  Tensor text_loss(const Batch& batch, float gradient_scale, ActivationTape& tape,
                   const Stream& stream);
  Tensor hidden(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void losses(const Tensor& of_rows, const Tensor& x, const Batch& batch, float gradient_scale,
              ActivationTape& tape, const Stream& stream) override;
  void backward_from_losses(const Batch& batch, ActivationTape& tape,
                            const Stream& stream) override;
  void require_head() const;
  Tensor head_rows(const Tensor& x, ActivationTape& tape, const Stream& stream);
  void body_backward(Tensor dx, const Batch& batch, ActivationTape& tape, const Stream& stream);
  Tensor hidden_of(const Tensor& tokens, ActivationTape& tape, const Stream& stream);
  Tensor decode(const Tensor& tokens, const DecodeTexts& texts, const States& states,
                std::int64_t last, const Pass& pass, const Stream& stream);
  void read_documents(const Pass& pass, const Stream& stream) {
    for (const auto& table : rotary_) table->read_documents(pass.positions, stream);
  }
  ModelConfig config_;
  std::vector<std::shared_ptr<RotaryTable>> rotary_;
  Embedding embedding_;
  BlockStack blocks_;
  std::unique_ptr<Norm> embedding_norm_;           // or null
  std::optional<Parameter> own_head_;              // set if the head is untied
  std::unique_ptr<HeadTransform> head_transform_;  // or null
  std::optional<Parameter> head_bias_;
  bool trains_head_bias_;
  LanguageHead head_;
  std::unique_ptr<TextHead> text_head_;  // or null
  PreferenceLoss preference_;
  SegmentedPass segmented_;
  std::shared_ptr<EncoderOutput> source_;      // or null
  std::unique_ptr<SourceEncoder> encoder_;     // or null
  std::shared_ptr<LayerInputs> layer_inputs_;  // or null
};

/// Returns the vocabulary rounded up to a multiple of 64 or, below 512 tokens, of 16.
std::int64_t padded_vocabulary(std::int64_t vocabulary);

}  // namespace hybrid_trainer
