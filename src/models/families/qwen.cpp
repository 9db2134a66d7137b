#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {
namespace {

std::vector<ModelPreset> qwen3_presets() {
  const ModelConfig model{.family = "qwen3",
                          .layers = 28,
                          .heads = 16,
                          .width = 1024,
                          .context = 40960,
                          .key_heads = 8,
                          .head_size = 128,
                          .inner_width = 3072,
                          .norm_epsilon = 1e-6,
                          .rope_theta = 1e6,
                          .tied_head = true};
  return {{"qwen3-0.6b", model, 4, 1024, "adamw", 3e-4, 151936}};
}

}  // namespace

ModelFamily qwen2_family() {
  return rotary_decoder_family({.name = "qwen2",
                                .title = "Qwen2",
                                .architecture = "Qwen2ForCausalLM",
                                .biased_queries = true,
                                .windows = "w",
                                .file_key_heads = 32,
                                .file_context = 32768,
                                .window_keys = WindowKeys::kFromLayer});
}

ModelFamily qwen3_family() {
  return rotary_decoder_family({.name = "qwen3",
                                .title = "Qwen3",
                                .architecture = "Qwen3ForCausalLM",
                                .query_key_norm = true,
                                .windows = "w",
                                .attention_bias = true,
                                .file_key_heads = 32,
                                .file_head_size = 128,
                                .file_context = 32768,
                                .window_keys = WindowKeys::kFromLayer,
                                .presets = qwen3_presets()});
}

}  // namespace hybrid_trainer
