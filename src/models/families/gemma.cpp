#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {

ModelFamily gemma2_family() {
  return rotary_decoder_family({.name = "gemma2",
                                .title = "Gemma 2",
                                .model_type = "gemma2",
                                .architecture = "Gemma2ForCausalLM",
                                .norm = NormKind::kRootMeanSquareOnePlus,
                                .gate = kernels::Gate::kGelu,
                                .last_norms = true,
                                .scaled_embedding = true,
                                .windows = "wa",
                                .caps = true,
                                .attention_bias = true,
                                .file_key_heads = 4,
                                .file_head_size = 256,
                                .file_context = 8192,
                                .file_tied_head = true,
                                .window_keys = WindowKeys::kLayerTypes});
}

ModelFamily gemma3_family() {
  return rotary_decoder_family({.name = "gemma3",
                                .title = "Gemma 3",
                                .model_type = "gemma3_text",
                                .architecture = "Gemma3ForCausalLM",
                                .query_key_norm = true,
                                .norm = NormKind::kRootMeanSquareOnePlus,
                                .gate = kernels::Gate::kGelu,
                                .last_norms = true,
                                .scaled_embedding = true,
                                .windows = "wwwwwa",
                                .window_rope = true,
                                .caps = true,
                                .attention_bias = true,
                                .file_key_heads = 4,
                                .file_head_size = 256,
                                .file_context = 131072,
                                .file_theta = 1e6,
                                .file_tied_head = true,
                                .window_keys = WindowKeys::kLayerTypes});
}

}  // namespace hybrid_trainer
