#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {

namespace {

/// Norms follow the branches. One norm spans all query heads, another all key heads.
RotaryDecoder olmo(const char* name, const char* title, const char* architecture) {
  return {.name = name,
          .title = title,
          .architecture = architecture,
          .query_key_norm = true,
          .norms_all_heads = true,
          .norms = {.attention = "",
                    .after_attention = "post_attention_layernorm",
                    .feed_forward = "",
                    .after_feed_forward = "post_feedforward_layernorm"},
          .attention_bias = true,
          .file_context = 2048,
          .file_epsilon = 1e-5};
}

std::vector<ModelPreset> olmo2_presets() {
  const ModelConfig model{.family = "olmo2",
                          .layers = 16,
                          .heads = 16,
                          .width = 2048,
                          .context = 4096,
                          .intermediate_size = 8192,
                          .norm_epsilon = 1e-6,
                          .rope_theta = 5e5};
  return {{"olmo2-1b", model, 4, 1024, "adamw", 4e-4, 100352}};
}

// Source: llama.cpp, src/models/olmo2.cpp.
std::string olmo2_difference(const ModelConfig& model) {
  if (model.tied_head) return "llama.cpp's OLMo 2 needs a separate head (model.tied_head=false)";
  if (model.heads * model.head_size != model.width)
    return "llama.cpp's OLMo 2 has heads of width / heads channels (model.head_size)";
  if (model.rope_scaling.type == "llama3")
    return "llama.cpp's OLMo 2 does not support model.rope_scaling.type=llama3";
  return "";
}

std::string olmo3_difference(const ModelConfig& model) {
  if (model.window == 0) return "llama.cpp's OLMo 3 has windows (model.window)";
  if (model.window_rope_theta != model.rope_theta)
    return concat("llama.cpp's OLMo 3 has one base of angles, but model.window_rope_theta is ",
                  model.window_rope_theta, " and model.rope_theta ", model.rope_theta);
  return olmo2_difference(model);
}

}  // namespace

ModelFamily olmo2_family() {
  RotaryDecoder kind = olmo("olmo2", "OLMo 2", "Olmo2ForCausalLM");
  kind.presets = olmo2_presets();
  kind.gguf = {.architecture = "olmo2",
               .refuses_window = true,
               .names = {{"post_attention_layernorm", "post_attention_norm"}},
               .difference = olmo2_difference};
  return rotary_decoder_family(kind);
}

/// Three of four layers have a window; only the others scale their angles.
ModelFamily olmo3_family() {
  RotaryDecoder kind = olmo("olmo3", "OLMo 3", "Olmo3ForCausalLM");
  kind.windows = "wwwa";
  kind.window_rope = true;
  kind.file_theta = 5e5;
  kind.window_keys = WindowKeys::kLayerTypes;
  kind.window_theta_key = nullptr;
  kind.gguf = {.architecture = "olmo2",
               .names = {{"post_attention_layernorm", "post_attention_norm"}},
               .difference = olmo3_difference,
               .window_period = 4};
  return rotary_decoder_family(kind);
}

}  // namespace hybrid_trainer
