#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kAnyLength = 1 << 20;  // its state does not grow

std::vector<ModelPreset> mamba_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t width, StateSpaceConfig sizes) {
    return ModelConfig{.family = "mamba2",
                       .layers = layers,
                       .width = width,
                       .context = kAnyLength,
                       .tied_head = true,
                       .state_space = sizes};
  };
  return {{"mamba2-tiny", shape(6, 128, {.heads = 8, .head_size = 32, .state_size = 32}), 16, 64,
           "muon", 1e-2},
          {"mamba2-130m", shape(24, 768, {.heads = 24, .head_size = 64}), 4, 1024, "adamw", 6e-4,
           50288}};
}

/// Mixers of Mamba-2 beside attention at some layers, without rotation.
ModelConfig granite(std::int64_t layers, std::int64_t width, std::int64_t heads,
                    std::int64_t key_heads, std::int64_t inner_width) {
  return {.family = "granitemoehybrid",
          .layers = layers,
          .heads = heads,
          .width = width,
          .context = 32768,
          .key_heads = key_heads,
          .inner_width = inner_width,
          .tied_head = true,
          .rotary_share = 0};
}

/// m, but for attention at these layers.
std::string with_attention_at(std::int64_t layers, std::initializer_list<std::size_t> at) {
  std::string mixers(static_cast<std::size_t>(layers), 'm');
  for (const std::size_t layer : at) mixers[layer] = 'a';
  return mixers;
}

std::vector<ModelPreset> granite_presets() {
  ModelConfig tiny = granite(4, 128, 4, 2, 0);
  tiny.state_space = {.heads = 8, .head_size = 32, .state_size = 32};
  ModelConfig small = granite(32, 768, 12, 4, 2048);  // Granite 4.0 H 350M
  small.mixers = with_attention_at(32, {10, 13, 17, 27});
  small.state_space = {.heads = 48, .head_size = 32};
  small.query_scalar = 4096;
  small.embedding_scale = 12;
  small.residual_scale = 0.246;
  small.logit_scale = 1.0 / 3;
  ModelConfig large = granite(40, 1536, 12, 4, 4096);  // Granite 4.0 H 1B
  large.mixers = with_attention_at(40, {5, 15, 25, 35});
  large.state_space = {.heads = 48, .head_size = 64};
  large.query_scalar = 16384;
  large.embedding_scale = 12;
  large.residual_scale = 0.22;
  large.logit_scale = 1.0 / 6;
  return {{"hybrid-tiny", tiny, 16, 64, "muon", 1e-2},
          {"granite-4.0-h-350m", small, 4, 1024, "adamw", 3e-4, 100352},
          {"granite-4.0-h-1b", large, 4, 1024, "adamw", 3e-4, 100352}};
}

/// A head's queries and its gates side by side in the files.
ProductFiles gated_attention_files(const ModelConfig& config) {
  ProductFiles files = usual_attention_files(config);
  files.orders = {{config.heads, {config.head_size, config.head_size}}, {}, {}};
  return files;
}

/// Of a head of keys: its queries and keys, the values and gates of its heads; their b and a.
ProductFiles qwen3_next_mixer_files(const ModelConfig& config) {
  const StateSpaceConfig& sizes = config.state_space;
  const std::int64_t keys = sizes.groups, shared = sizes.heads / keys;
  const std::int64_t values = shared * sizes.head_size;
  return {.first = {"in_proj_qkvz", "in_proj_ba"},
          .last = "out_proj",
          .orders = {{keys, {sizes.state_size, sizes.state_size, values, values}},
                     {keys, {shared, shared}}}};
}

ProductFiles qwen3_5_mixer_files(const ModelConfig&) {
  return {.first = {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"}, .last = "out_proj"};
}

/// What both have in common.
HybridDecoder qwen(const char* name, const char* title) {
  return {.name = name,
          .title = title,
          .letters = "da",
          .pattern = "ddda",
          .norm = NormKind::kRootMeanSquareOnePlus,
          .query_key_norm = true,
          .gated_attention = true,
          .attention_bias = true,
          .files = {.mixer = "linear_attn",
                    .attention = gated_attention_files,
                    .mlp_products = {.first = {"gate_proj", "up_proj"}, .last = "down_proj"}}};
}

std::vector<ModelPreset> qwen3_5_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t width, std::int64_t heads,
                        std::int64_t key_heads, std::int64_t head_size, StateSpaceConfig sizes) {
    return ModelConfig{.family = "qwen3_5",
                       .layers = layers,
                       .heads = heads,
                       .width = width,
                       .context = 32768,
                       .key_heads = key_heads,
                       .head_size = head_size,
                       .norm_epsilon = 1e-6,
                       .tied_head = true,
                       .state_space = sizes,
                       .rotary_share = 0.25};
  };
  ModelConfig small =
      shape(24, 1024, 8, 2, 256, {.heads = 16, .head_size = 128, .groups = 16});  // Qwen3.5 0.8B
  small.inner_width = 3584;
  small.context = 262144;
  small.rope_theta = 1e7;
  return {{"qwen3_5-tiny",
           shape(4, 128, 4, 2, 32, {.heads = 4, .head_size = 64, .groups = 2, .state_size = 32}),
           16, 64, "muon", 1e-2},
          {"qwen3.5-0.8b", small, 4, 1024, "adamw", 3e-4, 248320}};
}

ProductFiles own_files(const ModelConfig&) { return {}; }

ModelPreset semiseparable_tiny(const char* name, const char* mixers, bool two_way) {
  return {name,
          {.family = "semiseparable",
           .layers = 4,
           .heads = 8,
           .width = 128,
           .context = 1 << 20,  // its state does not grow
           .tied_head = true,
           .mixers = mixers,
           .two_way = two_way},
          16,
          64,
          "muon",
          1e-2};
}

}  // namespace

ModelFamily mamba2_family() {
  return hybrid_decoder_family({.name = "mamba2",
                                .title = "Mamba-2",
                                .letters = "m",
                                .pattern = "m",
                                .has_feed_forward = false,
                                .files = {.tokens = "embeddings",
                                          .final_norm = "norm_f",
                                          .mixer = "mixer",
                                          .mixer_norm = "norm",
                                          .mixer_products = state_space_files},
                                .layout = mamba2_layout(),
                                .presets = mamba_presets()});
}

ModelFamily granite_hybrid_family() {
  return hybrid_decoder_family(
      {.name = "granitemoehybrid",
       .title = "Granite 4",
       .letters = "ma",
       .pattern = "mmma",
       .attention_bias = true,
       .scales = true,
       .has_experts = true,
       .files = {.mixer = "mamba",
                 .mixer_products = state_space_files,
                 .mlp = "shared_mlp",
                 .mlp_products = {.first = {"input_linear"}, .last = "output_linear"},
                 .mixture = "block_sparse_moe",
                 .mixture_products = {.router = "router.layer",
                                      .first = {"input_linear"},
                                      .last = "output_linear",
                                      .shared_first = {"../shared_mlp.input_linear"},
                                      .shared_last = "../shared_mlp.output_linear"}},
       .layout = granite_hybrid_layout(),
       .presets = granite_presets()});
}

ModelFamily bamba_family() {
  return hybrid_decoder_family(
      {.name = "bamba",
       .title = "Bamba",
       .letters = "ma",
       .pattern = "mmma",
       .attention_bias = true,
       .mlp_bias = true,
       .files = {.final_norm = "final_layernorm",
                 .mixer = "mamba",
                 .mixer_products = state_space_files,
                 .mlp = "feed_forward",
                 .mlp_norm = "pre_ff_layernorm",
                 .mlp_products = {.first = {"gate_proj", "up_proj"}, .last = "down_proj"}},
       .layout = bamba_layout()});
}

ModelFamily qwen3_next_family() {
  HybridDecoder kind = qwen("qwen3_next", "Qwen3-Next");
  kind.files.mixer_products = qwen3_next_mixer_files;
  kind.layout = qwen3_next_layout();
  return hybrid_decoder_family(kind);
}

ModelFamily qwen3_5_family() {
  HybridDecoder kind = qwen("qwen3_5", "Qwen3.5");
  kind.files.mixer_products = qwen3_5_mixer_files;
  kind.layout = qwen3_5_layout();
  kind.presets = qwen3_5_presets();
  return hybrid_decoder_family(kind);
}

ModelFamily semiseparable_family() {
  return hybrid_decoder_family(
      {.name = "semiseparable",
       .title = "semiseparable",
       .letters = "acmdtp",
       .pattern = "t",
       .encoder_letters = "ahtpb",
       .files = {.mixer = "mix",
                 .mixer_norm = "ln_1",
                 .mixer_products = own_files,
                 .mlp_norm = "ln_2",
                 .mlp_products = {.first = {"gate_proj", "up_proj"}, .last = "down_proj"}},
       .presets = {semiseparable_tiny("semiseparable-tiny", "t", false),
                   semiseparable_tiny("bk-tiny", "b", true)}});
}

}  // namespace hybrid_trainer
