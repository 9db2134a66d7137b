#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/families/hybrid_layouts.h"

namespace hybrid_trainer {
namespace {

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

}  // namespace

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

}  // namespace hybrid_trainer
