#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {

namespace {

// Source: llama.cpp, src/models/glm4.cpp.
std::string glm4_difference(const ModelConfig& model) {
  if (model.rope_scaling.type != "llama3") return "";
  return "llama.cpp's GLM-4 does not support model.rope_scaling.type=llama3";
}

}  // namespace

/// Norms before and after each branch; the first half of a head's channels rotates, in adjacent
/// pairs; attention's output has no bias; gate and up projection are one tensor.
ModelFamily glm4_family() {
  return rotary_decoder_family(
      {.name = "glm4",
       .title = "GLM-4",
       .architecture = "Glm4ForCausalLM",
       .output_bias = false,
       .pairs_are_adjacent = true,
       .norms = {.after_attention = "post_self_attn_layernorm",
                 .after_feed_forward = "post_mlp_layernorm"},
       .attention_bias = true,
       .feed_forward_files = {"gate_up_proj"},
       .file_kv_heads = 2,
       .file_head_size = 128,
       .file_context = 131072,
       .file_epsilon = 1.5625e-7,
       .file_rotary_share = 0.5,
       .file_attention_bias = true,
       .gguf = GgufLayout{.architecture = "glm4",
                          .may_have_biases = true,
                          .has_output_bias = false,
                          .rotates_share = true,
                          .names = {{"post_self_attn_layernorm", "post_attention_norm"},
                                    {"post_mlp_layernorm", "post_ffw_norm"}},
                          .difference = glm4_difference}});
}

}  // namespace hybrid_trainer
