#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {

namespace {

ExpertMixture::Files mixtral_files() {
  return {.first = {"experts.{}.w1", "experts.{}.w3"}, .last = "experts.{}.w2"};
}

ExpertMixture::Files granite_files() {
  return {.router = "router.layer", .first = {"input_linear"}, .last = "output_linear"};
}

ExpertMixture::Files gpt_oss_files() {
  return {.router = "router",
          .first = {"experts.gate_up_proj"},
          .last = "experts.down_proj",
          .are_plain = true};
}

std::vector<ModelPreset> granite_mixture_presets() {
  ModelConfig tiny{.family = "granitemoe",
                   .layers = 4,
                   .heads = 4,
                   .width = 128,
                   .context = 64,
                   .kv_heads = 2,
                   .tied_head = true};
  tiny.experts = {.count = 8, .chosen = 2, .balance_loss = 0.01};
  ModelConfig billion{.family = "granitemoe",  // Granite 3.0 1B A400M
                      .layers = 24,
                      .heads = 16,
                      .width = 1024,
                      .context = 4096,
                      .kv_heads = 8,
                      .norm_epsilon = 1e-6,
                      .tied_head = true,
                      .query_scalar = 4096,
                      .embedding_scale = 12,
                      .residual_scale = 0.22,
                      .logit_scale = 1.0 / 6};
  billion.experts = {.count = 32, .chosen = 8, .intermediate_size = 512, .balance_loss = 0.01};
  return {{"moe-tiny", tiny, 16, 64, "muon", 1e-2},
          {"granite-moe-1b", billion, 4, 1024, "adamw", 3e-4, 49155}};
}

// Source: llama.cpp, src/models/qwen2moe.cpp and olmoe.cpp: shapes of heads.
std::string difference_of_plain_heads(const ModelConfig& model) {
  if (model.tied_head) return "llama.cpp needs a separate head (model.tied_head=false)";
  if (model.heads * model.head_size != model.width)
    return "llama.cpp has heads of width / heads channels (model.head_size)";
  return "";
}

std::string olmoe_difference(const ModelConfig& model) {
  if (model.query_key_value_limit > 0)
    return "llama.cpp's OLMoE does not clamp queries, keys and values "
           "(model.query_key_value_limit=0)";
  if (model.kv_heads != model.heads)
    return "llama.cpp's OLMoE has as many key heads as query heads (model.kv_heads)";
  return difference_of_plain_heads(model);
}

// Source: llama.cpp, src/models/openai-moe.cpp and src/llama-graph.cpp.
std::string gpt_oss_difference(const ModelConfig& model) {
  if (model.tied_head) return "llama.cpp's gpt-oss needs a separate head (model.tied_head=false)";
  if (!model.attention_bias)
    return "llama.cpp's gpt-oss has biases in attention (model.attention_bias=true)";
  if (model.experts.gate_limit != 7)
    return "llama.cpp's gpt-oss clamps gates at 7 (model.experts.gate_limit)";
  return model.window > 0 ? "" : "llama.cpp's gpt-oss requires a sliding window (model.window)";
}

}  // namespace

ModelFamily mixtral_family() {
  return rotary_decoder_family(
      {.name = "mixtral",
       .title = "Mixtral",
       .architecture = "MixtralForCausalLM",
       .windows = "w",
       .experts = FamilyExperts{.module = "block_sparse_moe",
                                .files = mixtral_files(),
                                .keys = {.count = "num_local_experts",
                                         .intermediate_size = "intermediate_size",
                                         .missing_count = 8,
                                         .missing_chosen = 2,
                                         .missing_intermediate_size = 14336}},
       .file_kv_heads = 8,
       .file_context = 131072,
       .file_theta = 1e6,
       .file_epsilon = 1e-5,
       .window_keys = WindowKeys::kAll,
       .gguf = GgufLayout{.architecture = "llama",
                          .pairs_rows = true,
                          .refuses_window = true,
                          .experts = GgufLayout::Experts{}}});
}

ModelFamily qwen2_moe_family() {
  return rotary_decoder_family(
      {.name = "qwen2_moe",
       .title = "Qwen2 MoE",
       .architecture = "Qwen2MoeForCausalLM",
       .biased_queries = true,
       .windows = "w",
       .experts = FamilyExperts{.rule = kSoftmaxRule,
                                .is_shared = true,
                                .keys = {.count = "num_experts|num_local_experts",
                                         .intermediate_size = "moe_intermediate_size",
                                         .shared_width = "shared_expert_intermediate_size",
                                         .missing_count = 60,
                                         .missing_chosen = 4,
                                         .missing_intermediate_size = 1408,
                                         .sums_to_one = "norm_topk_prob",
                                         .has_dense_layers = true}},
       .file_kv_heads = 16,
       .file_context = 32768,
       .window_keys = WindowKeys::kUntilLayer,
       .experts_are_parameters = true,
       .gguf = GgufLayout{
           .architecture = "qwen2moe",
           .difference = difference_of_plain_heads,
           .experts = GgufLayout::Experts{.rule = kSoftmaxRule,
                                          .has_own_size = true,
                                          .size_key = "moe_intermediate_size",
                                          .rule_key = "norm_topk_prob",
                                          .shared_size_key = "shared_expert_intermediate_size"}}});
}

ModelFamily qwen3_moe_family() {
  return rotary_decoder_family(
      {.name = "qwen3_moe",
       .title = "Qwen3 MoE",
       .architecture = "Qwen3MoeForCausalLM",
       .query_key_norm = true,
       .windows = "w",
       .experts = FamilyExperts{.keys = {.count = "num_experts|num_local_experts",
                                         .intermediate_size = "moe_intermediate_size",
                                         .missing_count = 128,
                                         .missing_chosen = 8,
                                         .missing_intermediate_size = 768,
                                         .sums_to_one = "norm_topk_prob",
                                         .has_dense_layers = true}},
       .attention_bias = true,
       .file_kv_heads = 4,
       .file_context = 32768,
       .window_keys = WindowKeys::kAllIfEnabled,
       .gguf = GgufLayout{.architecture = "qwen3moe",
                          .experts = GgufLayout::Experts{.has_own_size = true,
                                                         .size_key = "moe_intermediate_size",
                                                         .rule_key = "norm_topk_prob"}}});
}

ModelFamily olmoe_family() {
  return rotary_decoder_family(
      {.name = "olmoe",
       .title = "OLMoE",
       .architecture = "OlmoeForCausalLM",
       .query_key_norm = true,
       .norms_all_heads = true,
       .limits_values = true,
       .experts = FamilyExperts{.rule = kSoftmaxRule,
                                .keys = {.count = "num_experts|num_local_experts",
                                         .intermediate_size = "intermediate_size",
                                         .missing_count = 64,
                                         .missing_chosen = 8,
                                         .missing_intermediate_size = 2048,
                                         .sums_to_one = "norm_topk_prob",
                                         .missing_balance = 0.01}},
       .attention_bias = true,
       .file_context = 4096,
       .file_epsilon = 1e-5,
       .gguf = GgufLayout{
           .architecture = "olmoe",
           .difference = olmoe_difference,
           .experts = GgufLayout::Experts{.rule = kSoftmaxRule, .rule_key = "norm_topk_prob"}}});
}

ModelFamily granite_moe_family() {
  return rotary_decoder_family(
      {.name = "granitemoe",
       .title = "Granite MoE",
       .architecture = "GraniteMoeForCausalLM",
       .scales = true,
       .experts = FamilyExperts{.module = "block_sparse_moe",
                                .files = granite_files(),
                                .keys = {.count = "num_local_experts",
                                         .intermediate_size = "intermediate_size",
                                         .missing_count = 8,
                                         .missing_chosen = 2,
                                         .missing_intermediate_size = 11008}},
       .attention_bias = true,
       .file_context = 2048,
       .presets = granite_mixture_presets(),
       .gguf = GgufLayout{.architecture = "granitemoe",
                          .pairs_rows = true,
                          .may_have_biases = true,
                          .experts = GgufLayout::Experts{}}});
}

ModelFamily gpt_oss_family() {
  return rotary_decoder_family(
      {.name = "gpt_oss",
       .title = "gpt-oss",
       .architecture = "GptOssForCausalLM",
       .sinks = true,
       .windows = "wa",
       .experts = FamilyExperts{.count = 32,
                                .files = gpt_oss_files(),
                                .is_clamped = true,
                                .has_biases = true,
                                .keys = {.count = "num_local_experts|num_experts",
                                         .intermediate_size = "intermediate_size",
                                         .missing_count = 128,
                                         .missing_chosen = 4,
                                         .missing_intermediate_size = 2880,
                                         .gate_limit = "swiglu_limit"}},
       .attention_bias = true,
       .file_kv_heads = 8,
       .file_head_size = 64,
       .file_context = 131072,
       .file_theta = 150000,
       .file_epsilon = 1e-5,
       .file_attention_bias = true,
       .file_requires_scaling = true,
       .window_keys = WindowKeys::kLayerTypes,
       .gguf = GgufLayout{.architecture = "gpt-oss",
                          .may_have_biases = true,
                          .names = {{"post_attention_layernorm", "post_attention_norm"}},
                          .difference = gpt_oss_difference,
                          .window_period = 2,
                          .keeps_yarn_bounds = true,
                          .experts = GgufLayout::Experts{.has_own_size = true}}});
}

}  // namespace hybrid_trainer
