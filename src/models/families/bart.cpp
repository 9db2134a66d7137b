#include <cmath>

#include "hybrid_trainer/models/sequence_to_sequence.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "src/models/families/families.h"
#include "src/models/text_encoder.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kBartVocabulary = 50265;

/// Position t has row t + 2: the first rows were once meant for padding.
constexpr std::int64_t kFirstPosition = 2;

const ProductFiles kBartAttentionFiles{.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"};

BranchSpec bart_self_attention(const ModelConfig& config, std::int64_t heads, bool two_way) {
  const Attention::Spec attention{.width = config.width,
                                  .heads = static_cast<int>(heads),
                                  .head_size = config.width / heads,
                                  .two_way = two_way,
                                  .files = kBartAttentionFiles};
  return {.name = {"attn", "self_attn"},
          .norm = {"ln_1", "self_attn_layer_norm"},
          .make = branch_of<Attention>(attention)};
}

BranchSpec bart_cross_attention(const ModelConfig& config,
                                const std::shared_ptr<EncoderOutput>& source) {
  const CrossAttention::Spec attention{.width = config.width,
                                       .heads = static_cast<int>(config.heads),
                                       .head_size = config.width / config.heads,
                                       .source = source,
                                       .source_length = config.encoder.source_places(),
                                       .text_length = config.context,
                                       .files = kBartAttentionFiles};
  return {.name = {"cross", "encoder_attn"},
          .norm = {"ln_2", "encoder_attn_layer_norm"},
          .make = branch_of<CrossAttention>(attention)};
}

BranchSpec bart_feed_forward(const ModelConfig& config, std::int64_t inner_width,
                             const char* norm) {
  const FeedForward::Spec spec{.width = config.width,
                               .inner_width = inner_width,
                               .exact_gelu = true,
                               .files = {.first = {"fc1"}, .last = "fc2"}};
  return {.name = {"mlp", ""},
          .norm = {norm, "final_layer_norm"},
          .make = branch_of<FeedForward>(spec)};
}

std::unique_ptr<LanguageModel> bart_make(const ModelConfig& config, std::uint64_t seed,
                                         const Stream& stream) {
  const ResidualSpec residual{
      .width = config.width, .dropout = static_cast<float>(config.dropout), .post_norm = true};
  const EncoderConfig& encoder = config.encoder;
  const auto source = std::make_shared<EncoderOutput>();
  const DecoderSpec spec{.residual = residual,
                         .kinds = {{'a',
                                    {bart_self_attention(config, config.heads, false),
                                     bart_cross_attention(config, source),
                                     bart_feed_forward(config, config.inner_width, "ln_3")}}},
                         .pattern = "a",
                         .positions = config.context,
                         .embedding_scale = config.embedding_scale,
                         .scales_tokens_alone = true,
                         .first_position = kFirstPosition,
                         .embedding_norm = true,
                         .final_norm = false,
                         .head_bias = true,
                         .deviations = usual_deviations(config),
                         .files = {.layers = "decoder.layers",
                                   .tokens = "shared",
                                   .positions = "decoder.embed_positions",
                                   .embedding_norm = "decoder.layernorm_embedding",
                                   .head_bias = "final_logits_bias"}};
  const LayerSpec layer{bart_self_attention(config, encoder.heads, true),
                        bart_feed_forward(config, encoder.inner_width, "ln_2")};
  const auto make_encoder = [&](const std::shared_ptr<Parameter>& tokens) {
    return std::make_unique<TextEncoder>(
        TextEncoder::Spec{.sizes = encoder,
                          .residual = residual,
                          .layer = layer,
                          .embedding = {.positions = encoder.context,
                                        .width = config.width,
                                        .factor = config.embedding_scale,
                                        .scales_tokens_alone = true,
                                        .first_position = kFirstPosition,
                                        .positions_name = {"encoder.wpe.weight"},
                                        .tokens = tokens}},
        stream);
  };
  return std::make_unique<SequenceToSequence>(config, spec, make_encoder, source, seed, stream);
}

ModelConfig bart_resolved(const ModelConfig& given) {
  ModelConfig config = given;
  EncoderConfig& encoder = config.encoder;
  const auto complete = [](std::int64_t& value, std::int64_t meant) {
    if (value == 0) value = meant;
  };
  complete(config.inner_width, 4 * config.width);
  complete(encoder.layers, config.layers);
  complete(encoder.heads, config.heads);
  complete(encoder.inner_width, config.inner_width);
  complete(encoder.context, config.context);
  return config;
}

void bart_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const auto check = [&](const char* key, std::int64_t heads) {
    if (heads > 0 && config.width % heads != 0)
      problems.push_back(
          concat(key, ": got ", heads, ", which does not divide model.width ", config.width));
  };
  check("model.heads", config.heads);
  check("model.encoder.heads", config.encoder.heads);
  const EncoderConfig& encoder = config.encoder;
  if (encoder.features > 0)
    problems.push_back(concat("model.encoder.features: got ", encoder.features,
                              ", and bart's encoder reads tokens; leave it out"));
  const std::int64_t context = encoder.context > 0 ? encoder.context : config.context;
  if (encoder.source_length > context)
    problems.push_back(concat("model.encoder.source_length: got ", encoder.source_length,
                              ", and the encoder's context is ", context));
}

std::vector<ModelPreset> bart_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width) {
    return ModelConfig{
        .family = "bart", .layers = layers, .heads = heads, .width = width, .context = 1024};
  };
  return {{"bart-base", shape(6, 12, 768), 4, 128, "adamw", 2e-5, kBartVocabulary},
          {"bart-large", shape(12, 16, 1024), 4, 128, "adamw", 2e-5, kBartVocabulary}};
}

using Fixed = HuggingFaceLayout::Fixed;

std::vector<Fixed> bart_derived_keys(const ModelConfig&) { return {}; }

std::vector<Fixed> bart_written_keys(const ModelConfig& config) {
  return {{"num_hidden_layers", {config.encoder.layers}},
          {"dropout", {config.dropout}},
          {"attention_dropout", {0.0}},
          {"activation_dropout", {0.0}},
          {"classifier_dropout", {0.0}},
          {"encoder_layerdrop", {0.0}},
          {"decoder_layerdrop", {0.0}},
          {"init_std", {config.initializer_range.value_or(0.02)}}};
}

HuggingFaceLayout bart_hugging_face() {
  return {.model_type = "bart",
          .architecture = "BartForConditionalGeneration",
          .prefix = "model.",
          .members = {{"decoder_layers", &ModelConfig::layers},
                      {"decoder_attention_heads", &ModelConfig::heads},
                      {"decoder_ffn_dim", &ModelConfig::inner_width},
                      {"d_model", &ModelConfig::width},
                      {"max_position_embeddings", &ModelConfig::context, 1024},
                      {"max_position_embeddings", &EncoderConfig::context, 1024},
                      {"vocab_size", &ModelConfig::vocabulary},
                      {"encoder_layers", &EncoderConfig::layers},
                      {"encoder_attention_heads", &EncoderConfig::heads},
                      {"encoder_ffn_dim", &EncoderConfig::inner_width},
                      {"scale_embedding", &ModelConfig::embedding_scale, 0, false,
                       KeyUnit::kIsRootOfWidth}},
          .fixed = {{"activation_function", {std::string("gelu")}},
                    {"normalize_before", {false}},
                    {"normalize_embedding", {true}},
                    {"add_final_layer_norm", {false}},
                    {"add_bias_logits", {false}},
                    {"static_position_embeddings", {false}},
                    {"extra_pos_embeddings", {std::int64_t{2}}},
                    {"is_encoder_decoder", {true}},
                    {"tie_word_embeddings", {true}}},
          .derived = bart_derived_keys,
          .written = bart_written_keys,
          .tied_head = "shared.weight",
          .copies_of_table = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
          .inert = {"classif_dropout", "decoder_start_token_id", "force_bos_token_to_be_generated",
                    "forced_bos_token_id", "forced_eos_token_id", "max_length", "replacing_rate",
                    "student_decoder_layers", "student_encoder_layers"}};
}

}  // namespace

ModelFamily bart_family() {
  return {.name = "bart",
          .title = "BART",
          .keys = {"heads", "dropout", "initializer_range", "inner_width", "embedding_scale",
                   "encoder"},
          .collect_problems = bart_collect_problems,
          .resolved = bart_resolved,
          .make = bart_make,
          .presets = bart_presets(),
          .hugging_face = bart_hugging_face()};
}

}  // namespace hybrid_trainer
