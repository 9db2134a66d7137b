#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {

namespace {

std::vector<ModelPreset> llama_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                        std::int64_t width, std::int64_t context) {
    return ModelConfig{.family = "llama",
                       .layers = layers,
                       .heads = heads,
                       .width = width,
                       .context = context,
                       .kv_heads = kv_heads,
                       .tied_head = true};
  };
  ModelConfig billion = shape(16, 32, 8, 2048, 8192);  // Llama 3.2's
  billion.intermediate_size = 8192;
  billion.rope_theta = 5e5;
  return {{"llama-tiny", shape(4, 4, 2, 128, 64), 16, 64, "muon", 1e-2},
          {"llama-125m", shape(12, 12, 4, 768, 1024), 4, 1024, "adamw", 6e-4, 50257},
          {"llama-1b", billion, 4, 1024, "adamw", 3e-4, 128256}};
}

std::vector<ModelPreset> qwen3_presets() {
  const ModelConfig model{.family = "qwen3",
                          .layers = 28,
                          .heads = 16,
                          .width = 1024,
                          .context = 40960,
                          .kv_heads = 8,
                          .head_size = 128,
                          .intermediate_size = 3072,
                          .norm_epsilon = 1e-6,
                          .rope_theta = 1e6,
                          .tied_head = true};
  return {{"qwen3-0.6b", model, 4, 1024, "adamw", 3e-4, 151936}};
}

RotaryDecoder gemma(const char* name, const char* title, const char* architecture) {
  return {.name = name,
          .title = title,
          .architecture = architecture,
          .norm = NormKind::kRootMeanSquareOnePlus,
          .gate = kernels::Gate::kGelu,
          .norms = {.after_attention = "post_attention_layernorm",
                    .feed_forward = "pre_feedforward_layernorm",
                    .after_feed_forward = "post_feedforward_layernorm"},
          .scaled_embedding = true,
          .caps = true,
          .attention_bias = true,
          .file_kv_heads = 4,
          .file_head_size = 256,
          .file_tied_head = true,
          .window_keys = WindowKeys::kLayerTypes,
          .gguf = GgufLayout{.architecture = name}};
}

}  // namespace

ModelFamily llama_family() {
  return rotary_decoder_family(
      {.name = "llama",
       .title = "Llama",
       .architecture = "LlamaForCausalLM",
       .attention_bias = true,
       .mlp_bias = true,
       .file_context = 2048,
       .presets = llama_presets(),
       .gguf = GgufLayout{.architecture = "llama", .pairs_rows = true, .may_have_biases = true}});
}

ModelFamily granite_family() {
  return rotary_decoder_family(
      {.name = "granite",
       .title = "Granite",
       .architecture = "GraniteForCausalLM",
       .scales = true,
       .attention_bias = true,
       .mlp_bias = true,
       .file_context = 2048,
       .gguf = GgufLayout{.architecture = "granite", .pairs_rows = true, .may_have_biases = true}});
}

ModelFamily qwen2_family() {
  return rotary_decoder_family({.name = "qwen2",
                                .title = "Qwen2",
                                .architecture = "Qwen2ForCausalLM",
                                .biased_queries = true,
                                .windows = "w",
                                .file_kv_heads = 32,
                                .file_context = 32768,
                                .window_keys = WindowKeys::kFromLayer,
                                .gguf = GgufLayout{.architecture = "qwen2"}});
}

ModelFamily qwen3_family() {
  return rotary_decoder_family({.name = "qwen3",
                                .title = "Qwen3",
                                .architecture = "Qwen3ForCausalLM",
                                .query_key_norm = true,
                                .windows = "w",
                                .attention_bias = true,
                                .file_kv_heads = 32,
                                .file_head_size = 128,
                                .file_context = 32768,
                                .window_keys = WindowKeys::kFromLayer,
                                .presets = qwen3_presets(),
                                .gguf = GgufLayout{.architecture = "qwen3"}});
}

ModelFamily gemma2_family() {
  RotaryDecoder kind = gemma("gemma2", "Gemma 2", "Gemma2ForCausalLM");
  kind.windows = "wa";
  kind.file_context = 8192;
  kind.file_attention_cap = 50;
  kind.file_logit_cap = 30;
  kind.gguf.gemma = {.layers_of_27b = 46, .always_caps = true};
  kind.gguf.window_period = 2;
  return rotary_decoder_family(kind);
}

ModelFamily gemma3_family() {
  RotaryDecoder kind = gemma("gemma3", "Gemma 3", "Gemma3ForCausalLM");
  kind.model_type = "gemma3_text";
  kind.query_key_norm = true;
  kind.windows = "wwwwwa";
  kind.window_rope = true;
  kind.may_be_encoder = true;
  kind.window_keys = WindowKeys::kPeriod;
  kind.file_context = 131072;
  kind.file_theta = 1e6;
  kind.gguf.gemma = {.layers_of_27b = 62};
  kind.gguf.window_period = 6;
  return rotary_decoder_family(kind);
}

}  // namespace hybrid_trainer
