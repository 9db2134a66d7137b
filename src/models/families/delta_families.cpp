#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

/// Files interleave the queries and gates of each head.
ProductFiles gated_attention_files(const ModelConfig& config) {
  ProductFiles files = default_attention_files(config);
  files.orders = {{config.heads, {config.head_size, config.head_size}}, {}, {}};
  return files;
}

/// Files order the rows by key head. in_proj_qkvz has the head's queries and keys, then the values
/// and gates of its value heads; in_proj_ba has the b and a of these.
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

HybridDecoder qwen(const char* name, const char* title) {
  return {.name = name,
          .title = title,
          .letters = "da",
          .pattern = "ddda",
          .norm = NormKind::kRootMeanSquareOnePlus,
          .query_key_norm = true,
          .gated_attention = true,
          .attention_bias = true,
          .shared_expert = HybridDecoder::SharedExpert::kGated,
          .files = HybridDecoder::Files{
              .mixer = "linear_attn",
              .attention = gated_attention_files,
              .mlp_products = ProductFiles{.first = {"gate_proj", "up_proj"}, .last = "down_proj"},
              .mixture = "mlp"}};
}

HybridDecoder qwen3_5(const char* name, const char* title) {
  HybridDecoder kind = qwen(name, title);
  kind.files.mixer_products = qwen3_5_mixer_files;
  return kind;
}

std::vector<ModelPreset> qwen3_5_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t width, std::int64_t heads,
                        std::int64_t kv_heads, std::int64_t head_size, StateSpaceConfig sizes) {
    return ModelConfig{.family = "qwen3_5",
                       .layers = layers,
                       .heads = heads,
                       .width = width,
                       .context = 32768,
                       .kv_heads = kv_heads,
                       .head_size = head_size,
                       .norm_epsilon = 1e-6,
                       .tied_head = true,
                       .state_space = sizes,
                       .rotary_share = 0.25};
  };
  ModelConfig small =
      shape(24, 1024, 8, 2, 256, {.heads = 16, .head_size = 128, .groups = 16});  // Qwen3.5 0.8B
  small.intermediate_size = 3584;
  small.context = 262144;
  small.rope_theta = 1e7;
  return {{"qwen3_5-tiny",
           shape(4, 128, 4, 2, 32, {.heads = 4, .head_size = 64, .groups = 2, .state_size = 32}),
           16, 64, "muon", 1e-2},
          {"qwen3.5-0.8b", small, 4, 1024, "adamw", 3e-4, 248320}};
}

void delta_rule_keys(ConfigKeys& keys, ModelConfig& model, double missing_kv_heads) {
  sizes_with_attention(keys, model);
  keys.member("max_position_embeddings", model.context, 32768);
  keys.member("rms_norm_eps", model.norm_epsilon, 1e-6);
  keys.member("head_dim", model.head_size, 256);
  keys.member("linear_num_value_heads", model.state_space.heads, 32);
  keys.member("linear_value_head_dim", model.state_space.head_size, 128);
  keys.member("linear_num_key_heads", model.state_space.groups, 16);
  keys.member("linear_key_head_dim", model.state_space.state_size, 128);
  keys.member("linear_conv_kernel_dim", model.state_space.taps, 4);
  keys.member("num_key_value_heads", model.kv_heads, missing_kv_heads);
  if (!keys.fit(model)) return;
  rotary_keys(keys, model, {.share = 0.25});
  mixer_keys(keys, model, MixerKeys::kAttentionInterval, 'd');
}

void last_qwen3_5_keys(ConfigKeys& keys, const ModelConfig& model) {
  keys.inert({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
              "mlp_only_layers"});
  silu_key(keys);
  keys.fixed("attn_output_gate", {true});
  written_of_attention(keys, model);
}

void qwen3_5_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("intermediate_size", model.intermediate_size);
  delta_rule_keys(keys, model, 4);
  if (!keys.fit(model)) return;
  keys.inert({"num_experts", "num_experts_per_tok"});
  last_qwen3_5_keys(keys, model);
}

ExpertKeys expert_keys_of_qwen() {
  return {.count = "num_experts",
          .intermediate_size = "moe_intermediate_size",
          .shared_width = "shared_expert_intermediate_size",
          .missing_count = 512,
          .missing_chosen = 10,
          .missing_intermediate_size = 512,
          .missing_shared_width = 512};
}

void qwen3_5_moe_keys(ConfigKeys& keys, ModelConfig& model) {
  delta_rule_keys(keys, model, 2);
  if (!keys.fit(model)) return;
  ExpertKeys experts = expert_keys_of_qwen();
  experts.missing_count = 256;
  experts.missing_chosen = 8;
  expert_keys(keys, model, experts);
  keys.inert({"intermediate_size"});
  last_qwen3_5_keys(keys, model);
}

void qwen3_next_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("intermediate_size", model.intermediate_size);
  delta_rule_keys(keys, model, 2);
  if (!keys.fit(model)) return;
  ExpertKeys experts = expert_keys_of_qwen();
  experts.zero_means_dense = true;
  experts.sums_to_one = "norm_topk_prob";
  experts.missing_sums_to_one = true;
  experts.has_dense_layers = true;
  expert_keys(keys, model, experts);
  silu_key(keys);
  written_of_attention(keys, model);
}

// Source: llama.cpp, src/models/qwen3next.cpp, qwen35.cpp and qwen35moe.cpp.
std::string delta_rule_difference(const ModelConfig& model) {
  const StateSpaceConfig& sizes = model.state_space;
  if (sizes.head_size == sizes.state_size) return "";
  return concat("llama.cpp's keys and values have equal sizes in DeltaNet layers, but ",
                "model.state_space.state_size is ", sizes.state_size, " and head_size ",
                sizes.head_size);
}

std::string qwen3_next_difference(const ModelConfig& model) {
  return model.experts.count > 0 ? delta_rule_difference(model)
                                 : "llama.cpp's Qwen3-Next has experts (model.experts.count)";
}

GgufLayout delta_rule_layout(const char* architecture) {
  return {.architecture = architecture,
          .rotates_share = true,
          .names = {{"post_attention_layernorm", "post_attention_norm"}},
          .difference = delta_rule_difference,
          .delta_rule = GgufLayout::DeltaRule{.tiles_heads = true}};
}

GgufLayout::Experts gguf_experts_of_qwen() {
  return {.has_own_size = true,
          .count_key = "num_experts",
          .size_key = "moe_intermediate_size",
          .shared_size_key = "shared_expert_intermediate_size"};
}

}  // namespace

ModelFamily qwen3_next_family() {
  HybridDecoder kind = qwen("qwen3_next", "Qwen3-Next");
  kind.has_experts = true;
  kind.chosen_experts = 10;
  kind.files.mixer_products = qwen3_next_mixer_files;
  kind.layout = with_attention("qwen3_next", "Qwen3NextForCausalLM", qwen3_next_keys);
  /// PEFT mistakes these of dense layers and shared experts for experts.
  kind.layout.unadaptable = {"gate_proj", "up_proj", "down_proj"};
  kind.layout.carried = {"mtp."};
  kind.gguf = delta_rule_layout("qwen3next");
  kind.gguf.difference = qwen3_next_difference;
  kind.gguf.experts = gguf_experts_of_qwen();
  kind.gguf.experts->rule_key = "norm_topk_prob";
  kind.gguf.delta_rule->tiles_heads = false;
  return hybrid_decoder_family(kind);
}

ModelFamily qwen3_5_family() {
  HybridDecoder kind = qwen3_5("qwen3_5", "Qwen3.5");
  kind.layout = with_attention("qwen3_5_text", "Qwen3_5ForCausalLM", qwen3_5_keys);
  kind.layout.outer = {.model_type = "qwen3_5", .prefix = "model.language_model."};
  kind.layout.carried = {"mtp.", "model.visual."};
  kind.presets = qwen3_5_presets();
  kind.gguf = delta_rule_layout("qwen35");
  return hybrid_decoder_family(kind);
}

ModelFamily qwen3_5_moe_family() {
  HybridDecoder kind = qwen3_5("qwen3_5_moe", "Qwen3.5 MoE");
  kind.has_feed_forward = false;
  kind.has_experts = true;
  kind.experts = 256;
  kind.chosen_experts = 8;
  kind.files.mixture_products = {
      .first = {"experts.gate_up_proj"}, .last = "experts.down_proj", .ending = ""};
  kind.layout = with_attention("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", qwen3_5_moe_keys);
  kind.layout.outer = {.model_type = "qwen3_5_moe", .prefix = "model.language_model."};
  kind.gguf = delta_rule_layout("qwen35moe");
  kind.gguf.experts = gguf_experts_of_qwen();
  kind.layout.carried = {"mtp.", "model.visual."};
  return hybrid_decoder_family(kind);
}

}  // namespace hybrid_trainer
