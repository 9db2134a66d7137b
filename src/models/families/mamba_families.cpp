#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kAnyLength = 1 << 20;  // its state has a constant size

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

/// Returns a model of Mamba-2 mixers with attention in some layers, without rotation.
ModelConfig granite(std::int64_t layers, std::int64_t width, std::int64_t heads,
                    std::int64_t kv_heads, std::int64_t intermediate_size) {
  return {.family = "granitemoehybrid",
          .layers = layers,
          .heads = heads,
          .width = width,
          .context = 32768,
          .kv_heads = kv_heads,
          .intermediate_size = intermediate_size,
          .tied_head = true,
          .rotary_share = 0};
}

/// Returns the letters of the layers: a (attention) for the layers `at`, m for all others.
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

/// Accepts keys of checkpoints on the Hub that transformers' classes do not have.
void mamba_extras(ConfigKeys& keys) {
  keys.inert({"A_init_range",           "A_initializer_range",   "conv_init",
              "conv_initializer_range", "emb_initializer_range", "init_method",
              "mamba_ssm_cache_dtype",  "norm_before_gate",      "normalization_function",
              "num_logits_to_keep",     "residual_in_fp32",      "rms_norm",
              "tie_embeddings",         "time_step_floor",       "time_step_init_scheme",
              "time_step_max",          "time_step_min",         "time_step_rank",
              "time_step_scale",        "use_mamba_kernels"});
}

constexpr MambaKeys kMambaKeys{.head_size = "mamba_d_head", .expand = "mamba_expand"};

void mamba_sizes(ConfigKeys& keys, ModelConfig& model) {
  keys.member("mamba_n_heads", model.state_space.heads, 128);
  keys.member("mamba_n_groups", model.state_space.groups, 1);
  keys.member("mamba_d_state", model.state_space.state_size, 256);
  keys.member("mamba_d_conv", model.state_space.taps, 4);
  keys.member("mamba_proj_bias", model.state_space.biases, 0);
  keys.member("mamba_conv_bias", model.state_space.convolution_bias, 1);
}

void mamba2_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("hidden_size", model.width);
  keys.member("vocab_size", model.vocabulary);
  keys.member("max_position_embeddings", model.context, kAnyLength);
  keys.member("layer_norm_epsilon", model.norm_epsilon, 1e-5);
  keys.member("tie_word_embeddings", model.tied_head, 0);
  keys.member("num_heads", model.state_space.heads, 128);
  keys.member("n_groups", model.state_space.groups, 8);
  keys.member("state_size", model.state_space.state_size, 128);
  keys.member("conv_kernel", model.state_space.taps, 4);
  keys.member("use_bias", model.state_space.biases, 0);
  keys.member("use_conv_bias", model.state_space.convolution_bias, 1);
  if (!keys.fit(model)) return;
  mamba_keys(keys, model, {.head_size = "head_dim", .expand = "expand", .missing_head_size = 64});
  keys.inert({"chunk_size", "intermediate_size", "rescale_prenorm_residual"});
  mamba_extras(keys);
  silu_key(keys);
  keys.write_only("initializer_range", model.initializer_range.value_or(0.1));
}

void granite_hybrid_keys(ConfigKeys& keys, ModelConfig& model) {
  sizes_with_attention(keys, model);
  keys.member("num_key_value_heads", model.kv_heads, 0);
  keys.member("head_dim", model.head_size, 0);
  keys.member("shared_intermediate_size", model.intermediate_size, 1024);
  keys.member("max_position_embeddings", model.context, 2048);
  keys.member("rms_norm_eps", model.norm_epsilon, 1e-6);
  scale_keys(keys, model);
  mamba_sizes(keys, model);
  if (!keys.fit(model)) return;
  rotary_keys(keys, model, {});
  position_type_keys(keys, model);
  mixer_keys(keys, model, MixerKeys::kLayerTypes, 'm');
  mamba_keys(keys, model, kMambaKeys);
  expert_keys(keys, model,
              {.count = "num_local_experts",
               .intermediate_size = "intermediate_size",
               .missing_count = 8,
               .missing_chosen = 2,
               .missing_intermediate_size = 11008,
               .zero_means_dense = true});
  keys.inert({"mamba_chunk_size"});
  mamba_extras(keys);
  silu_key(keys);
  written_of_attention(keys, model);
}

constexpr double kBambaShare = 0.5;

void bamba_keys(ConfigKeys& keys, ModelConfig& model) {
  sizes_with_attention(keys, model);
  keys.nullable("num_key_value_heads", model.kv_heads, 8);
  keys.member("head_dim", model.head_size, 0);
  keys.member("intermediate_size", model.intermediate_size, 14336);
  keys.member("max_position_embeddings", model.context, 262144);
  keys.member("rms_norm_eps", model.norm_epsilon, 1e-5);
  keys.member("mlp_bias", model.mlp_bias, 0);
  mamba_sizes(keys, model);
  if (!keys.fit(model)) return;
  rotary_keys(keys, model, {.share = kBambaShare, .share_is_in_parameters = true});
  mixer_keys(keys, model, MixerKeys::kAttentionLayers, 'm');
  mamba_keys(keys, model, kMambaKeys);
  keys.inert({"attn_rotary_emb", "mamba_chunk_size", "z_loss_coefficient"});
  mamba_extras(keys);
  silu_key(keys);
  written_of_attention(keys, model);
}

std::string bamba_misread(const ModelConfig& model) {
  if (model.rotary_share == kBambaShare) return "";
  return concat("config.json stores model.rotary_share=", model.rotary_share,
                " in a key that transformers 4 ignores; it uses ", kBambaShare);
}

HuggingFaceLayout bamba_layout() {
  HuggingFaceLayout layout = with_attention("bamba", "BambaForCausalLM", bamba_keys);
  layout.misread = bamba_misread;
  return layout;
}

}  // namespace

ModelFamily mamba2_family() {
  return hybrid_decoder_family({.name = "mamba2",
                                .title = "Mamba-2",
                                .letters = "m",
                                .pattern = "m",
                                .has_feed_forward = false,
                                .files = HybridDecoder::Files{.tokens = "embeddings",
                                                              .final_norm = "norm_f",
                                                              .mixer = "mixer",
                                                              .mixer_norm = "norm",
                                                              .mixer_products = state_space_files},
                                .layout = HuggingFaceLayout{.model_type = "mamba2",
                                                            .architecture = "Mamba2ForCausalLM",
                                                            .prefix = "backbone.",
                                                            .keys = mamba2_keys,
                                                            .tied_head = "embeddings.weight",
                                                            .unadaptable = {"out_proj"}},
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
       .files =
           HybridDecoder::Files{
               .mixer = "mamba",
               .mixer_products = state_space_files,
               .mlp = "shared_mlp",
               .mlp_products = ProductFiles{.first = {"input_linear"}, .last = "output_linear"},
               .mixture = "block_sparse_moe",
               .mixture_products =
                   ExpertMixture::Files{.router = "router.layer",
                                        .first = {"input_linear"},
                                        .last = "output_linear",
                                        .shared_first = {"../shared_mlp.input_linear"},
                                        .shared_last = "../shared_mlp.output_linear"}},
       .layout =
           with_attention("granitemoehybrid", "GraniteMoeHybridForCausalLM", granite_hybrid_keys),
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
       .files = HybridDecoder::Files{.final_norm = "final_layernorm",
                                     .mixer = "mamba",
                                     .mixer_products = state_space_files,
                                     .mlp = "feed_forward",
                                     .mlp_norm = "pre_ff_layernorm",
                                     .mlp_products = ProductFiles{.first = {"gate_proj", "up_proj"},
                                                                  .last = "down_proj"}},
       .layout = bamba_layout()});
}

}  // namespace hybrid_trainer
