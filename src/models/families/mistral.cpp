#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"

namespace hybrid_trainer {

ModelFamily mistral_family() {
  return rotary_decoder_family({.name = "mistral",
                                .title = "Mistral",
                                .architecture = "MistralForCausalLM",
                                .windows = "w",
                                .file_key_heads = 8,
                                .file_context = 131072,
                                .window_keys = WindowKeys::kAll});
}

}  // namespace hybrid_trainer
