#include "src/models/families/hybrid_decoder.h"

namespace hybrid_trainer {

namespace {

using Fixed = HuggingFaceLayout::Fixed;
using Member = HuggingFaceLayout::Member;

std::vector<Fixed> no_derived_keys(const ModelConfig&) { return {}; }

std::vector<Fixed> written_of_attention(const ModelConfig& config) {
  return {{"initializer_range", {config.initializer_range.value_or(0.02)}},
          {"attention_dropout", {0.0}}};
}

std::vector<Fixed> written_of_mamba(const ModelConfig& config) {
  return {{"initializer_range", {config.initializer_range.value_or(0.1)}}};
}

Fixed silu() { return {"hidden_act", {std::string("silu"), std::string("swish")}}; }

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

void add(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// What all but Mamba-2 have in common: attention, rotation and feed-forward branches.
HuggingFaceLayout with_attention(const char* model_type, const char* architecture) {
  return {.model_type = model_type,
          .architecture = architecture,
          .prefix = "model.",
          .members = {{"num_hidden_layers", &ModelConfig::layers},
                      {"num_attention_heads", &ModelConfig::heads},
                      {"hidden_size", &ModelConfig::width},
                      {"vocab_size", &ModelConfig::vocabulary},
                      {"tie_word_embeddings", &ModelConfig::tied_head, 0},
                      {"attention_bias", &ModelConfig::attention_bias, 0}},
          .fixed = {silu()},
          .derived = no_derived_keys,
          .written = written_of_attention,
          .tied_head = "embed_tokens.weight",
          .ignored = {".rotary_emb.inv_freq"},
          .rope_theta = 1e4};
}

/// Mamba-2's mixers by the keys of granitemoehybrid and bamba.
void add_mamba_keys(HuggingFaceLayout& layout) {
  const std::vector<Member> members{{"mamba_n_heads", &StateSpaceConfig::heads, 128},
                                    {"mamba_n_groups", &StateSpaceConfig::groups, 1},
                                    {"mamba_d_state", &StateSpaceConfig::state_size, 256},
                                    {"mamba_d_conv", &StateSpaceConfig::taps, 4},
                                    {"mamba_proj_bias", &StateSpaceConfig::biases, 0},
                                    {"mamba_conv_bias", &StateSpaceConfig::convolution_bias, 1}};
  layout.members.insert(layout.members.end(), members.begin(), members.end());
  layout.head_size_key = "mamba_d_head";
  layout.expand_key = "mamba_expand";
  add(layout.inert, {"mamba_chunk_size"});
  add(layout.inert, mamba_extras());
}

/// Gated DeltaNet's mixers, gated attention, and a quarter of each head rotated.
HuggingFaceLayout with_delta_rule(const char* model_type, const char* architecture) {
  HuggingFaceLayout layout = with_attention(model_type, architecture);
  const std::vector<Member> members{{"intermediate_size", &ModelConfig::inner_width},
                                    {"max_position_embeddings", &ModelConfig::context, 32768},
                                    {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-6},
                                    {"head_dim", &ModelConfig::head_size, 256},
                                    {"linear_num_value_heads", &StateSpaceConfig::heads, 32},
                                    {"linear_value_head_dim", &StateSpaceConfig::head_size, 128},
                                    {"linear_num_key_heads", &StateSpaceConfig::groups, 16},
                                    {"linear_key_head_dim", &StateSpaceConfig::state_size, 128},
                                    {"linear_conv_kernel_dim", &StateSpaceConfig::taps, 4}};
  layout.members.insert(layout.members.end(), members.begin(), members.end());
  layout.rotary_share = 0.25;
  layout.mixer_keys = MixerKeys::kAttentionInterval;
  layout.mixer = 'd';
  layout.carried = {"mtp."};
  return layout;
}

}  // namespace

HuggingFaceLayout mamba2_layout() {
  HuggingFaceLayout layout{.model_type = "mamba2",
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
                           .fixed = {silu()},
                           .derived = no_derived_keys,
                           .written = written_of_mamba,
                           .tied_head = "embeddings.weight"};
  layout.not_adapted = {"out_proj"};
  layout.head_size_key = "head_dim";
  layout.missing_head_size = 64;
  layout.expand_key = "expand";
  layout.inert = {"chunk_size", "intermediate_size", "rescale_prenorm_residual"};
  add(layout.inert, mamba_extras());
  return layout;
}

HuggingFaceLayout granite_hybrid_layout() {
  HuggingFaceLayout layout = with_attention("granitemoehybrid", "GraniteMoeHybridForCausalLM");
  const std::vector<Member> members{
      {"num_key_value_heads", &ModelConfig::key_heads, 0},
      {"head_dim", &ModelConfig::head_size, 0},
      {"shared_intermediate_size", &ModelConfig::inner_width, 1024},
      {"max_position_embeddings", &ModelConfig::context, 2048},
      {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-6},
      {"embedding_multiplier", &ModelConfig::embedding_scale, 1},
      {"residual_multiplier", &ModelConfig::residual_scale, 1},
      {"logits_scaling", &ModelConfig::logit_scale, 1, false, KeyUnit::kReciprocal},
      {"attention_multiplier", &ModelConfig::query_scalar, 1, false, KeyUnit::kReciprocalRoot}};
  layout.members.insert(layout.members.end(), members.begin(), members.end());
  add_mamba_keys(layout);
  layout.mixer_keys = MixerKeys::kLayerTypes;
  layout.rotates_by_type = true;
  layout.experts = {.count = "num_local_experts",
                    .inner_width = "intermediate_size",
                    .missing_count = 8,
                    .missing_chosen = 2,
                    .missing_inner_width = 11008,
                    .may_be_none = true};
  return layout;
}

HuggingFaceLayout bamba_layout() {
  HuggingFaceLayout layout = with_attention("bamba", "BambaForCausalLM");
  const std::vector<Member> members{{"num_key_value_heads", &ModelConfig::key_heads, 8, true},
                                    {"head_dim", &ModelConfig::head_size, 0},
                                    {"intermediate_size", &ModelConfig::inner_width, 14336},
                                    {"max_position_embeddings", &ModelConfig::context, 262144},
                                    {"rms_norm_eps", &ModelConfig::norm_epsilon, 1e-5},
                                    {"mlp_bias", &ModelConfig::mlp_bias, 0}};
  layout.members.insert(layout.members.end(), members.begin(), members.end());
  add_mamba_keys(layout);
  layout.mixer_keys = MixerKeys::kAttentionLayers;
  layout.rotary_share = 0.5;
  layout.share_in_parameters = true;
  add(layout.inert, {"attn_rotary_emb", "z_loss_coefficient"});
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
  layout.experts = {.count = "num_experts", .missing_count = 512, .are_refused = true};
  layout.inert = {"decoder_sparse_step",   "mlp_only_layers",
                  "moe_intermediate_size", "norm_topk_prob",
                  "num_experts_per_tok",   "output_router_logits",
                  "router_aux_loss_coef",  "shared_expert_intermediate_size"};
  return layout;
}

}  // namespace hybrid_trainer
