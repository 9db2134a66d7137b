#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {
namespace {

constexpr RotaryDecoder kGemma2{.name = "gemma2",
                                .title = "Gemma 2",
                                .model_type = "gemma2",
                                .architecture = "Gemma2ForCausalLM",
                                .gemma = true,
                                .windows = "wa",
                                .caps = true,
                                .attention_bias = true,
                                .file_key_heads = 4,
                                .file_head_size = 256,
                                .file_context = 8192,
                                .file_tied_head = true,
                                .window_keys = WindowKeys::kLayerTypes};

constexpr RotaryDecoder kGemma3{.name = "gemma3",
                                .title = "Gemma 3",
                                .model_type = "gemma3_text",
                                .architecture = "Gemma3ForCausalLM",
                                .query_key_norm = true,
                                .gemma = true,
                                .windows = "wwwwwa",
                                .window_rope = true,
                                .caps = true,
                                .attention_bias = true,
                                .file_key_heads = 4,
                                .file_head_size = 256,
                                .file_context = 131072,
                                .file_theta = 1e6,
                                .file_tied_head = true,
                                .window_keys = WindowKeys::kLayerTypes};

}  // namespace

ModelFamily gemma2_family() { return rotary_decoder_family<kGemma2>(); }
ModelFamily gemma3_family() { return rotary_decoder_family<kGemma3>(); }

}  // namespace hybrid_trainer
