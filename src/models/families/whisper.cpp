#include "hybrid_trainer/models/sequence_to_sequence.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "src/models/families/families.h"
#include "src/models/speech_encoder.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kVocabulary = 51865;

const ProductFiles kAttentionFiles{.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"};

/// Keys have no bias: it would add the same to all scores of a query.
BranchSpec whisper_self_attention(const ModelConfig& config, std::int64_t heads, bool two_way) {
  Attention::Spec attention{.width = config.width,
                            .heads = static_cast<int>(heads),
                            .head_size = config.width / heads,
                            .key_bias = false,
                            .two_way = two_way,
                            .files = kAttentionFiles};
  return {.name = {"attn", "self_attn"},
          .norm = {"ln_1", "self_attn_layer_norm"},
          .make = branch_of<Attention>(attention)};
}

BranchSpec whisper_cross_attention(const ModelConfig& config,
                                   const std::shared_ptr<EncoderOutput>& source) {
  const CrossAttention::Spec attention{.width = config.width,
                                       .heads = static_cast<int>(config.heads),
                                       .head_size = config.width / config.heads,
                                       .key_bias = false,
                                       .source = source,
                                       .source_length = config.encoder.context,
                                       .text_length = config.context,
                                       .files = kAttentionFiles};
  return {.name = {"cross", "encoder_attn"},
          .norm = {"ln_2", "encoder_attn_layer_norm"},
          .make = branch_of<CrossAttention>(attention)};
}

BranchSpec whisper_feed_forward(const ModelConfig& config, std::int64_t inner_width,
                                const char* norm) {
  const FeedForward::Spec spec{.width = config.width,
                               .inner_width = inner_width,
                               .exact_gelu = true,
                               .files = {.first = {"fc1"}, .last = "fc2"}};
  return {.name = {"mlp", ""},
          .norm = {norm, "final_layer_norm"},
          .make = branch_of<FeedForward>(spec)};
}

std::unique_ptr<LanguageModel> whisper_make(const ModelConfig& config, std::uint64_t seed,
                                            const Stream& stream) {
  const ResidualSpec residual{.width = config.width, .dropout = static_cast<float>(config.dropout)};
  const EncoderConfig& encoder = config.encoder;
  const auto source = std::make_shared<EncoderOutput>();
  DecoderSpec spec{.residual = residual,
                   .kinds = {{'a',
                              {whisper_self_attention(config, config.heads, false),
                               whisper_cross_attention(config, source),
                               whisper_feed_forward(config, config.inner_width, "ln_3")}}},
                   .pattern = "a",
                   .positions = config.context,
                   .deviations = usual_deviations(config),
                   .files = {.layers = "decoder.layers",
                             .tokens = "decoder.embed_tokens",
                             .positions = "decoder.embed_positions",
                             .final_norm = "decoder.layer_norm"}};
  const LayerSpec layer{whisper_self_attention(config, encoder.heads, true),
                        whisper_feed_forward(config, encoder.inner_width, "ln_2")};
  return std::make_unique<SequenceToSequence>(
      config, spec,
      [&](const std::shared_ptr<Parameter>&) {
        return std::make_unique<SpeechEncoder>(encoder, residual, layer, stream);
      },
      source, seed, stream);
}

ModelConfig whisper_resolved(const ModelConfig& given) {
  ModelConfig config = given;
  EncoderConfig& encoder = config.encoder;
  const auto complete = [](std::int64_t& value, std::int64_t meant) {
    if (value == 0) value = meant;
  };
  complete(config.inner_width, 4 * config.width);
  complete(encoder.layers, config.layers);
  complete(encoder.heads, config.heads);
  complete(encoder.inner_width, config.inner_width);
  complete(encoder.context, 1500);
  complete(encoder.features, 80);
  return config;
}

void whisper_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const auto check = [&](const char* key, std::int64_t heads) {
    if (heads > 0 && config.width % heads != 0)
      problems.push_back(
          concat(key, ": got ", heads, ", which does not divide model.width ", config.width));
  };
  check("model.heads", config.heads);
  check("model.encoder.heads", config.encoder.heads);
  if (config.encoder.source_length > 0)
    problems.push_back(concat("model.encoder.source_length: got ", config.encoder.source_length,
                              ", and whisper hears clips; leave it out"));
  if (config.width % 2 != 0)
    problems.push_back(concat("model.width: got ", config.width,
                              ", want an even number: half of the channels of a position are "
                              "sines, half cosines"));
}

std::vector<ModelPreset> whisper_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width) {
    return ModelConfig{
        .family = "whisper", .layers = layers, .heads = heads, .width = width, .context = 448};
  };
  return {{"whisper-tiny", shape(4, 6, 384), 4, 448, "adamw", 1e-5, kVocabulary},
          {"whisper-base", shape(6, 8, 512), 4, 448, "adamw", 1e-5, kVocabulary},
          {"whisper-small", shape(12, 12, 768), 4, 448, "adamw", 1e-5, kVocabulary}};
}

using Fixed = HuggingFaceLayout::Fixed;

std::vector<Fixed> whisper_derived_keys(const ModelConfig&) { return {}; }

std::vector<Fixed> whisper_written_keys(const ModelConfig& config) {
  return {{"num_hidden_layers", {config.encoder.layers}},
          {"dropout", {config.dropout}},
          {"attention_dropout", {0.0}},
          {"activation_dropout", {0.0}},
          {"encoder_layerdrop", {0.0}},
          {"decoder_layerdrop", {0.0}},
          {"init_std", {config.initializer_range.value_or(0.02)}}};
}

HuggingFaceLayout whisper_hugging_face() {
  return {.model_type = "whisper",
          .architecture = "WhisperForConditionalGeneration",
          .prefix = "model.",
          .members = {{"decoder_layers", &ModelConfig::layers},
                      {"decoder_attention_heads", &ModelConfig::heads},
                      {"decoder_ffn_dim", &ModelConfig::inner_width},
                      {"d_model", &ModelConfig::width},
                      {"max_target_positions", &ModelConfig::context, 448},
                      {"vocab_size", &ModelConfig::vocabulary},
                      {"encoder_layers", &EncoderConfig::layers},
                      {"encoder_attention_heads", &EncoderConfig::heads},
                      {"encoder_ffn_dim", &EncoderConfig::inner_width},
                      {"max_source_positions", &EncoderConfig::context, 1500},
                      {"num_mel_bins", &EncoderConfig::features, 80}},
          .fixed = {{"activation_function", {std::string("gelu")}},
                    {"scale_embedding", {false}},
                    {"use_weighted_layer_sum", {false}},
                    {"is_encoder_decoder", {true}},
                    {"tie_word_embeddings", {true}}},
          .derived = whisper_derived_keys,
          .written = whisper_written_keys,
          .tied_head = "decoder.embed_tokens.weight",
          .ignored = {"proj_out.weight"},
          .inert = {"apply_spec_augment", "begin_suppress_tokens", "classifier_proj_size",
                    "decoder_start_token_id", "forced_decoder_ids", "mask_feature_length",
                    "mask_feature_min_masks", "mask_feature_prob", "mask_time_length",
                    "mask_time_min_masks", "mask_time_prob", "max_length", "median_filter_width",
                    "suppress_tokens"}};
}

}  // namespace

ModelFamily whisper_family() {
  return {.name = "whisper",
          .title = "Whisper",
          .keys = {"heads", "dropout", "initializer_range", "inner_width", "encoder"},
          .collect_problems = whisper_collect_problems,
          .resolved = whisper_resolved,
          .make = whisper_make,
          .presets = whisper_presets(),
          .hugging_face = whisper_hugging_face()};
}

}  // namespace hybrid_trainer
