#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {
namespace {

std::vector<ModelPreset> llama_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t key_heads,
                        std::int64_t width, std::int64_t context) {
    return ModelConfig{.family = "llama",
                       .layers = layers,
                       .heads = heads,
                       .width = width,
                       .context = context,
                       .key_heads = key_heads,
                       .tied_head = true};
  };
  ModelConfig billion = shape(16, 32, 8, 2048, 8192);  // Llama 3.2's
  billion.inner_width = 8192;
  billion.rope_theta = 5e5;
  return {{"llama-tiny", shape(4, 4, 2, 128, 64), 16, 64, "muon", 1e-2},
          {"llama-125m", shape(12, 12, 4, 768, 1024), 4, 1024, "adamw", 6e-4, 50257},
          {"llama-1b", billion, 4, 1024, "adamw", 3e-4, 128256}};
}

}  // namespace

ModelFamily llama_family() {
  return rotary_decoder_family({.name = "llama",
                                .title = "Llama",
                                .architecture = "LlamaForCausalLM",
                                .attention_bias = true,
                                .mlp_bias = true,
                                .file_context = 2048,
                                .presets = llama_presets()});
}

}  // namespace hybrid_trainer
