#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {
namespace {

/// What both have in common.
RotaryDecoder gemma(const char* name, const char* title, const char* architecture) {
  return {.name = name,
          .title = title,
          .architecture = architecture,
          .norm = NormKind::kRootMeanSquareOnePlus,
          .gate = kernels::Gate::kGelu,
          .last_norms = true,
          .scaled_embedding = true,
          .caps = true,
          .attention_bias = true,
          .file_key_heads = 4,
          .file_head_size = 256,
          .file_tied_head = true,
          .window_keys = WindowKeys::kLayerTypes};
}

}  // namespace

ModelFamily gemma2_family() {
  RotaryDecoder kind = gemma("gemma2", "Gemma 2", "Gemma2ForCausalLM");
  kind.windows = "wa";
  kind.file_context = 8192;
  return rotary_decoder_family(kind);
}

ModelFamily gemma3_family() {
  RotaryDecoder kind = gemma("gemma3", "Gemma 3", "Gemma3ForCausalLM");
  kind.model_type = "gemma3_text";
  kind.query_key_norm = true;
  kind.windows = "wwwwwa";
  kind.window_rope = true;
  kind.file_context = 131072;
  kind.file_theta = 1e6;
  return rotary_decoder_family(kind);
}

}  // namespace hybrid_trainer
