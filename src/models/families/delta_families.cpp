#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/hugging_face/layer_keys.h"

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

/// Gated DeltaNet's mixers, gated attention, and a quarter of each head rotated.
HuggingFaceLayout with_delta_rule(const char* model_type, const char* architecture) {
  HuggingFaceLayout layout = with_attention(model_type, architecture);
  add(layout.members, {{"intermediate_size", &ModelConfig::inner_width},
                       {"max_position_embeddings", &ModelConfig::context, 32768},
                       {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-6},
                       {"head_dim", &ModelConfig::head_size, 256},
                       {"linear_num_value_heads", &StateSpaceConfig::heads, 32},
                       {"linear_value_head_dim", &StateSpaceConfig::head_size, 128},
                       {"linear_num_key_heads", &StateSpaceConfig::groups, 16},
                       {"linear_key_head_dim", &StateSpaceConfig::state_size, 128},
                       {"linear_conv_kernel_dim", &StateSpaceConfig::taps, 4}});
  layout.groups = {rotary_keys({.share = 0.25}), mixer_keys(MixerKeys::kAttentionInterval, 'd')};
  layout.carried = {"mtp."};
  return layout;
}

HuggingFaceLayout qwen3_5_layout() {
  HuggingFaceLayout layout = with_delta_rule("qwen3_5_text", "Qwen3_5ForCausalLM");
  layout.members.push_back({"num_key_value_heads", &ModelConfig::key_heads, 4});
  layout.fixed.push_back({"attn_output_gate", {true}});
  layout.inert = {"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
                  "mlp_only_layers", "num_experts",           "num_experts_per_tok"};
  layout.outer = {.model_type = "qwen3_5", .prefix = "model.language_model."};
  layout.carried.push_back("model.visual.");
  return layout;
}

HuggingFaceLayout qwen3_next_layout() {
  HuggingFaceLayout layout = with_delta_rule("qwen3_next", "Qwen3NextForCausalLM");
  layout.members.push_back({"num_key_value_heads", &ModelConfig::key_heads, 2});
  layout.not_adapted = {"gate_proj", "up_proj", "down_proj"};  // PEFT takes them for experts'
  layout.groups.push_back(no_expert_keys("num_experts", 512));
  layout.inert = {"decoder_sparse_step",   "mlp_only_layers",
                  "moe_intermediate_size", "norm_topk_prob",
                  "num_experts_per_tok",   "output_router_logits",
                  "router_aux_loss_coef",  "shared_expert_intermediate_size"};
  return layout;
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
