#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

void phi3_keys(ConfigKeys& keys, ModelConfig& model) {
  ConfigReader* const reader = keys.reader();
  if (reader == nullptr) return;
  const std::string& type = model.rope_scaling.type;
  if (type != "default" && type != "longrope")
    reader->problem(concat("rope_type: got ", type, ", want default or longrope"));
  // transformers' Phi-3 has no biases and ignores these keys of Phi-4-mini.
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"})
    reader->expect(key, {false});
  for (const char* key : {"full_attn_mod", "interpolate_factor"})
    reader->expect(key, {std::int64_t{1}});
}

// Source: llama.cpp, src/models/phi3.cpp.
std::string phi3_difference(const ModelConfig& model) {
  if (model.heads * model.head_size == model.width) return "";
  return "llama.cpp's Phi-3 has heads of width / heads channels (model.head_size)";
}

}  // namespace

/// Queries, keys and values are one tensor, gate and up projection another; a share of each head's
/// channels may rotate (Phi-4-mini), with longrope's angles.
ModelFamily phi3_family() {
  return rotary_decoder_family(
      {.name = "phi3",
       .title = "Phi-3",
       .architecture = "Phi3ForCausalLM",
       .windows = "w",
       .attention_files = {"qkv_proj"},
       .feed_forward_files = {"gate_up_proj"},
       .file_context = 4096,
       .file_epsilon = 1e-5,
       .file_window = 0,
       .file_rotary_share = 1,
       .window_keys = WindowKeys::kAll,
       .file_original_context = 4096,
       .more_keys = phi3_keys,
       .gguf = GgufLayout{
           .architecture = "phi3", .rotates_share = true, .difference = phi3_difference}});
}

}  // namespace hybrid_trainer
