#include <numeric>

#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/nn/embedding.h"
#include "src/models/families/families.h"
#include "src/models/sequence_to_sequence.h"

namespace hybrid_trainer {

namespace {

/// BART's text encoder: the decoder's token table, learned positions, a norm of their sum, and
/// residual blocks. Batches contain "source_tokens" (B, S) i32, "source_positions" (B, S) i32,
/// which are 0 at the start of a source and of its padding, and "source_lengths" (B) i32, without
/// padding. Attention excludes padding.
class TextEncoder final : public SourceEncoder {
 public:
  TextEncoder(const Spec& spec, const Embedding::Spec& embedding, const Stream& stream);

  Tensor lengths(const Batch& batch) const override { return batch.at("source_lengths"); }
  bool trains() override { return embedding_.tokens().trainable() || SourceEncoder::trains(); }
  std::vector<NamedTensor> empty_sources(std::int64_t count, const Stream& stream) const override;

 private:
  void set_positions(const Batch& batch, ActivationTape& tape) const override {
    tape.set_positions(batch.at("source_positions"));
  }
  Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) override;
  void begin_backward(const Batch& batch, const Tensor& dx, ActivationTape& tape,
                      const Stream& stream) override {
    embedding_.backward(embedding_norm_->backward(dx, tape, stream), batch.at("source_tokens"),
                        tape.pass(), stream);
  }
  void initialize_begin(const InitialDeviations& deviations, std::uint64_t seed,
                        const Stream& stream) override {
    initialize_normal(embedding_.positions(), deviations.embedding, seed, stream);
  }
  void visit_parameters_of_begin(const ParameterVisitor& visit) override {
    embedding_.visit_parameters(visit);
    embedding_norm_->visit_parameters(visit);
  }
  std::vector<std::string> parts_of_begin() const override { return {"encoder.wpe.*"}; }
  Embedding embedding_;
  std::unique_ptr<Norm> embedding_norm_;
};

TextEncoder::TextEncoder(const Spec& spec, const Embedding::Spec& embedding, const Stream& stream)
    : SourceEncoder(spec, stream),
      embedding_(embedding, stream),
      embedding_norm_(make_norm({"encoder.ln_e", "encoder.layernorm_embedding"},
                                spec.residual.width, spec.residual.norm, stream)) {
  Parameter& positions = embedding_.positions();
  positions.set_in_files({{"encoder.embed_positions.weight", positions.shape()}});
}

Tensor TextEncoder::begin(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const Tensor& tokens = batch.at("source_tokens");
  if (tokens.size(1) > sizes().context)
    throw ShapeMismatch(concat("encoder: got a source of ", tokens.size(1),
                               " tokens, want at most the encoder's context, ", sizes().context));
  return embedding_norm_->forward(embedding_.forward(tokens, tape.pass(), stream), tape, stream);
}

/// Makes sources without padding, which cost the most.
std::vector<NamedTensor> TextEncoder::empty_sources(std::int64_t count,
                                                    const Stream& stream) const {
  const Shape places{count, sizes().source_places()};
  const auto zeros = [&](const Shape& shape) {
    return Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream);
  };
  const std::vector<NamedTensor> sources{{"source_tokens", zeros(places)},
                                         {"source_positions", zeros(places)},
                                         {"source_lengths", zeros({count})}};
  if (stream.device().simulated) return sources;
  const Stream host(MemoryPool::create("host"));
  const auto filled = [&](const Shape& shape) {
    return Tensor::empty(shape, DType::kI32, MemoryKind::kData, host);
  };
  const Tensor positions = filled(places), lengths = filled({count});
  for (std::int64_t i = 0; i < count; ++i) {
    auto* const row = positions.data<std::int32_t>() + i * places[1];
    std::iota(row, row + places[1], 0);
    lengths.data<std::int32_t>()[i] = static_cast<std::int32_t>(places[1]);
  }
  wait_for_copy(sources[1].tensor, positions, stream);
  wait_for_copy(sources[2].tensor, lengths, stream);
  return sources;
}

constexpr std::int64_t kBartVocabulary = 50265;

/// Position t has row t + 2: the first rows were once reserved for padding.
constexpr std::int64_t kFirstPosition = 2;

std::unique_ptr<LanguageModel> bart_make(const ModelConfig& config, std::uint64_t seed,
                                         const Stream& stream) {
  const ResidualSpec residual{
      .width = config.width, .dropout = static_cast<float>(config.dropout), .post_norm = true};
  const EncoderConfig& encoder = config.encoder;
  const auto source = std::make_shared<EncoderOutput>();
  DecoderSpec spec{.residual = residual,
                   .kinds = {{'a', sequence_decoder_layer(config, source, true)}},
                   .pattern = "a",
                   .positions = config.context,
                   .embedding_scale = config.embedding_scale,
                   .scales_only_tokens = true,
                   .first_position = kFirstPosition,
                   .embedding_norm = true,
                   .final_norm = false,
                   .head_bias = DecoderSpec::Bias::kFrozen,
                   .deviations = default_deviations(config),
                   .files = {.layers = "decoder.layers",
                             .tokens = "shared",
                             .positions = "decoder.embed_positions",
                             .embedding_norm = "decoder.layernorm_embedding",
                             .head_bias = "final_logits_bias"},
                   .source = source};
  spec.make_encoder = [&](const std::shared_ptr<Parameter>& tokens) {
    const Embedding::Spec embedding{.positions = encoder.context,
                                    .width = config.width,
                                    .factor = config.embedding_scale,
                                    .scales_only_tokens = true,
                                    .first_position = kFirstPosition,
                                    .positions_name = {"encoder.wpe.weight"},
                                    .tokens = tokens};
    const TextEncoder::Spec blocks{encoder, residual, sequence_encoder_layer(config, true)};
    return std::make_unique<TextEncoder>(blocks, embedding, stream);
  };
  return std::make_unique<Decoder>(config, spec, seed, stream);
}

ModelConfig bart_resolved(const ModelConfig& given) {
  ModelConfig config = with_encoder_sizes(given);
  if (config.encoder.context == 0) config.encoder.context = config.context;
  return config;
}

void bart_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  collect_head_problems(config, problems);
  const EncoderConfig& encoder = config.encoder;
  if (encoder.features > 0)
    problems.push_back(concat("model.encoder.features: got ", encoder.features,
                              ", but bart's encoder reads tokens; leave it out"));
  const std::int64_t context = encoder.context > 0 ? encoder.context : config.context;
  if (encoder.source_length > context)
    problems.push_back(concat("model.encoder.source_length: got ", encoder.source_length,
                              ", want at most the encoder's context, ", context));
}

std::vector<ModelPreset> bart_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width) {
    return ModelConfig{
        .family = "bart", .layers = layers, .heads = heads, .width = width, .context = 1024};
  };
  return {{"bart-base", shape(6, 12, 768), 4, 128, "adamw", 2e-5, kBartVocabulary},
          {"bart-large", shape(12, 16, 1024), 4, 128, "adamw", 2e-5, kBartVocabulary}};
}

void bart_keys(ConfigKeys& keys, ModelConfig& model) {
  sequence_decoder_keys(keys, model);
  keys.member("max_position_embeddings", model.context, 1024);
  keys.member("max_position_embeddings", model.encoder.context, 1024);
  sequence_encoder_keys(keys, model);
  keys.root_of_width("scale_embedding", model.embedding_scale, model.width);
  if (!keys.fit(model)) return;
  keys.inert({"classif_dropout", "decoder_start_token_id", "force_bos_token_to_be_generated",
              "forced_bos_token_id", "forced_eos_token_id", "max_length", "replacing_rate",
              "student_decoder_layers", "student_encoder_layers"});
  keys.fixed("activation_function", {"gelu"});
  keys.fixed("normalize_before", {false});
  keys.fixed("normalize_embedding", {true});
  keys.fixed("add_final_layer_norm", {false});
  keys.fixed("add_bias_logits", {false});
  keys.fixed("static_position_embeddings", {false});
  keys.fixed("extra_pos_embeddings", {2});
  keys.fixed("is_encoder_decoder", {true});
  keys.fixed("tie_word_embeddings", {true});
  sequence_written_keys(keys, model, true);
}

}  // namespace

ModelFamily bart_family() {
  return {.name = "bart",
          .title = "BART",
          .keys = {"heads", "dropout", "initializer_range", "intermediate_size", "embedding_scale",
                   "encoder"},
          .collect_problems = bart_collect_problems,
          .resolved = bart_resolved,
          .make = bart_make,
          .presets = bart_presets(),
          .hugging_face = HuggingFaceLayout{.model_type = "bart",
                                            .architecture = "BartForConditionalGeneration",
                                            .prefix = "model.",
                                            .keys = bart_keys,
                                            .tied_head = "shared.weight",
                                            .copies_of_table = {"encoder.embed_tokens.weight",
                                                                "decoder.embed_tokens.weight"}},
          .purpose = {"text2text-generation", "A language model", "SEQ_2_SEQ_LM"},
          .fine_tuning = {.layout = "apart"}};
}

}  // namespace hybrid_trainer
