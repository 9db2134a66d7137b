#include "hybrid_trainer/core/error.h"
#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

using Fixed = HuggingFaceLayout::Fixed;

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

std::vector<Fixed> written_of_mamba(const ModelConfig& config) {
  return {{"initializer_range", {config.initializer_range.value_or(0.1)}}};
}

/// Keys of checkpoints on the Hub beside those of the classes.
std::vector<std::string> mamba_extras() {
  return {"A_init_range",           "A_initializer_range",   "conv_init",
          "conv_initializer_range", "emb_initializer_range", "init_method",
          "mamba_ssm_cache_dtype",  "norm_before_gate",      "normalization_function",
          "num_logits_to_keep",     "residual_in_fp32",      "rms_norm",
          "tie_embeddings",         "time_step_floor",       "time_step_init_scheme",
          "time_step_max",          "time_step_min",         "time_step_rank",
          "time_step_scale",        "use_mamba_kernels"};
}

constexpr MambaKeys kMambaKeys{.head_size = "mamba_d_head", .expand = "mamba_expand"};

/// Mamba-2's mixers by the keys of granitemoehybrid and bamba.
void add_mamba_keys(HuggingFaceLayout& layout) {
  add(layout.members, {{"mamba_n_heads", &StateSpaceConfig::heads, 128},
                       {"mamba_n_groups", &StateSpaceConfig::groups, 1},
                       {"mamba_d_state", &StateSpaceConfig::state_size, 256},
                       {"mamba_d_conv", &StateSpaceConfig::taps, 4},
                       {"mamba_proj_bias", &StateSpaceConfig::biases, 0},
                       {"mamba_conv_bias", &StateSpaceConfig::convolution_bias, 1}});
  add(layout.inert, {"mamba_chunk_size"});
  add(layout.inert, mamba_extras());
}

HuggingFaceLayout mamba2_layout() {
  HuggingFaceLayout layout{
      .model_type = "mamba2",
      .architecture = "Mamba2ForCausalLM",
      .prefix = "backbone.",
      .members = {{"num_hidden_layers", &ModelConfig::layers},
                  {"hidden_size", &ModelConfig::width},
                  {"vocab_size", &ModelConfig::vocabulary},
                  {"max_position_embeddings", &ModelConfig::context, 1 << 20},
                  {"layer_norm_epsilon", &ModelConfig::norm_epsilon, 1e-5},
                  {"tie_word_embeddings", &ModelConfig::tied_head, 0},
                  {"num_heads", &StateSpaceConfig::heads, 128},
                  {"n_groups", &StateSpaceConfig::groups, 8},
                  {"state_size", &StateSpaceConfig::state_size, 128},
                  {"conv_kernel", &StateSpaceConfig::taps, 4},
                  {"use_bias", &StateSpaceConfig::biases, 0},
                  {"use_conv_bias", &StateSpaceConfig::convolution_bias, 1}},
      .fixed = {silu_key()},
      .groups = {mamba_keys(
          {.head_size = "head_dim", .expand = "expand", .missing_head_size = 64})},
      .written = written_of_mamba,
      .tied_head = "embeddings.weight"};
  layout.not_adapted = {"out_proj"};
  layout.inert = {"chunk_size", "intermediate_size", "rescale_prenorm_residual"};
  add(layout.inert, mamba_extras());
  return layout;
}

HuggingFaceLayout granite_hybrid_layout() {
  HuggingFaceLayout layout = with_attention("granitemoehybrid", "GraniteMoeHybridForCausalLM");
  add(layout.members, {{"num_key_value_heads", &ModelConfig::key_heads, 0},
                       {"head_dim", &ModelConfig::head_size, 0},
                       {"shared_intermediate_size", &ModelConfig::inner_width, 1024},
                       {"max_position_embeddings", &ModelConfig::context, 2048},
                       {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-6}});
  add(layout.members, scale_members());
  add_mamba_keys(layout);
  layout.groups = {rotary_keys({}), position_type_keys(), mixer_keys(MixerKeys::kLayerTypes, 'm'),
                   mamba_keys(kMambaKeys),
                   expert_keys({.count = "num_local_experts",
                                .inner_width = "intermediate_size",
                                .missing_count = 8,
                                .missing_chosen = 2,
                                .missing_inner_width = 11008,
                                .may_be_none = true})};
  return layout;
}

constexpr double kBambaShare = 0.5;

std::string bamba_misread(const ModelConfig& model) {
  if (model.rotary_share == kBambaShare) return "";
  return concat("config.json says model.rotary_share=", model.rotary_share,
                " where transformers 4 does not look: that version takes ", kBambaShare);
}

HuggingFaceLayout bamba_layout() {
  HuggingFaceLayout layout = with_attention("bamba", "BambaForCausalLM");
  add(layout.members, {{"num_key_value_heads", &ModelConfig::key_heads, 8, true},
                       {"head_dim", &ModelConfig::head_size, 0},
                       {"intermediate_size", &ModelConfig::inner_width, 14336},
                       {"max_position_embeddings", &ModelConfig::context, 262144},
                       {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-5},
                       {"mlp_bias", &ModelConfig::mlp_bias, 0}});
  add_mamba_keys(layout);
  layout.groups = {rotary_keys({.share = kBambaShare, .share_is_in_parameters = true}),
                   mixer_keys(MixerKeys::kAttentionLayers, 'm'), mamba_keys(kMambaKeys)};
  layout.misread = bamba_misread;
  add(layout.inert, {"attn_rotary_emb", "z_loss_coefficient"});
  return layout;
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
       .rotates_all_or_none = true,
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
