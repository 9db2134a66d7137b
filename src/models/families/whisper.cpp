#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/nn/convolution.h"
#include "src/models/families/families.h"
#include "src/models/sequence_to_sequence.h"

namespace hybrid_trainer {

namespace {

/// Whisper's audio encoder: stem, blocks, norm. Batches have "features", (B, 2·context, bands) f32.
class SpeechEncoder final : public SourceEncoder {
 public:
  SpeechEncoder(const Spec& spec, const Stream& stream)
      : SourceEncoder(spec, stream),
        stem_(spec.sizes.features, spec.sizes.context, spec.residual.width, stream) {}

  std::vector<NamedTensor> empty_sources(std::int64_t count, const Stream& stream) const override {
    return {{"features", Tensor::zeros({count, 2 * sizes().context, sizes().features}, DType::kF32,
                                       MemoryKind::kData, stream)}};
  }

 private:
  Tensor begin(const Batch& batch, ActivationTape& tape, const Stream& stream) override {
    return stem_.forward(batch.at("features"), tape, stream);
  }
  void begin_backward(const Batch&, const Tensor& dx, ActivationTape& tape,
                      const Stream& stream) override {
    stem_.backward(dx, tape, stream);
  }
  void initialize_begin(const InitialDeviations& deviations, std::uint64_t seed,
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

constexpr std::int64_t kWhisperVocabulary = 51865;

/// Keys have no bias, which would only shift all scores of a query equally.
constexpr bool kKeyBias = false;

std::unique_ptr<LanguageModel> whisper_make(const ModelConfig& config, std::uint64_t seed,
                                            const Stream& stream) {
  const ResidualSpec residual{.width = config.width, .dropout = static_cast<float>(config.dropout)};
  const auto source = std::make_shared<EncoderOutput>();
  DecoderSpec spec{.residual = residual,
                   .kinds = {{'a', sequence_decoder_layer(config, source, kKeyBias)}},
                   .pattern = "a",
                   .positions = config.context,
                   .deviations = default_deviations(config),
                   .files = {.layers = "decoder.layers",
                             .tokens = "decoder.embed_tokens",
                             .positions = "decoder.embed_positions",
                             .final_norm = "decoder.layer_norm"},
                   .source = source};
  spec.make_encoder = [&](const std::shared_ptr<Parameter>&) {
    return std::make_unique<SpeechEncoder>(
        SpeechEncoder::Spec{config.encoder, residual, sequence_encoder_layer(config, kKeyBias),
                            ModuleName("encoder.ln_f", "encoder.layer_norm")},
        stream);
  };
  return std::make_unique<Decoder>(config, spec, seed, stream);
}

ModelConfig whisper_resolved(const ModelConfig& given) {
  ModelConfig config = with_encoder_sizes(given);
  if (config.encoder.context == 0) config.encoder.context = 1500;
  if (config.encoder.features == 0) config.encoder.features = 80;
  return config;
}

void whisper_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  collect_head_problems(config, problems);
  if (config.encoder.source_length > 0)
    problems.push_back(concat("model.encoder.source_length: got ", config.encoder.source_length,
                              ", but speech models do not use it; leave it out"));
  if (config.width % 2 != 0)
    problems.push_back(
        concat("model.width: got ", config.width,
               ", want an even number: positions are encoded half as sines, half as cosines"));
}

std::vector<ModelPreset> whisper_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width) {
    return ModelConfig{
        .family = "whisper", .layers = layers, .heads = heads, .width = width, .context = 448};
  };
  return {{"whisper-tiny", shape(4, 6, 384), 4, 448, "adamw", 1e-5, kWhisperVocabulary},
          {"whisper-base", shape(6, 8, 512), 4, 448, "adamw", 1e-5, kWhisperVocabulary},
          {"whisper-small", shape(12, 12, 768), 4, 448, "adamw", 1e-5, kWhisperVocabulary}};
}

void whisper_keys(ConfigKeys& keys, ModelConfig& model) {
  sequence_decoder_keys(keys, model);
  keys.member("max_target_positions", model.context, 448);
  sequence_encoder_keys(keys, model);
  keys.member("max_source_positions", model.encoder.context, 1500);
  keys.member("num_mel_bins", model.encoder.features, 80);
  if (!keys.fit(model)) return;
  keys.inert({"apply_spec_augment", "begin_suppress_tokens", "classifier_proj_size",
              "decoder_start_token_id", "forced_decoder_ids", "mask_feature_length",
              "mask_feature_min_masks", "mask_feature_prob", "mask_time_length",
              "mask_time_min_masks", "mask_time_prob", "max_length", "median_filter_width",
              "suppress_tokens"});
  keys.fixed("activation_function", {"gelu"});
  keys.fixed("scale_embedding", {false});
  keys.fixed("use_weighted_layer_sum", {false});
  keys.fixed("is_encoder_decoder", {true});
  keys.fixed("tie_word_embeddings", {true});
  sequence_written_keys(keys, model);
}

}  // namespace

ModelFamily whisper_family() {
  return {.name = "whisper",
          .title = "Whisper",
          .keys = {"heads", "dropout", "initializer_range", "intermediate_size", "encoder"},
          .collect_problems = whisper_collect_problems,
          .resolved = whisper_resolved,
          .make = whisper_make,
          .presets = whisper_presets(),
          .hugging_face = HuggingFaceLayout{.model_type = "whisper",
                                            .architecture = "WhisperForConditionalGeneration",
                                            .prefix = "model.",
                                            .keys = whisper_keys,
                                            .tied_head = "decoder.embed_tokens.weight",
                                            .ignored = {"proj_out.weight"}},
          .purpose = {"automatic-speech-recognition", "A speech model", ""},
          .fine_tuning = {.layout = "apart", .learning_rate = 1e-5}};
}

}  // namespace hybrid_trainer
