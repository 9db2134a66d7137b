#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/families/hybrid_layouts.h"

namespace hybrid_trainer {
namespace {

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

}  // namespace

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

}  // namespace hybrid_trainer
