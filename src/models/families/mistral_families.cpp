#include <boost/json.hpp>

#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

/// Adds the folders of Mistral 3, which also read images: their text_config describes the model.
RotaryDecoder inside_mistral3(RotaryDecoder kind) {
  kind.outer = {.model_type = "mistral3",
                .prefix = "model.language_model.",
                .older = "language_model.",
                .inert = {"image_token_index", "multimodal_projector_bias", "projector_hidden_act",
                          "spatial_merge_size", "vision_feature_layer"},
                .file_tied_head = true};
  kind.carried = {"vision_tower.", "multi_modal_projector."};
  return kind;
}

/// transformers opens a Mistral folder with layer_types as its model Ministral, whose layers may
/// differ.
void mistral_keys(ConfigKeys& keys, ModelConfig& model) {
  ConfigReader* const reader = keys.reader();
  const auto* const types = reader == nullptr ? nullptr : reader->find("layer_types");
  if (types == nullptr) return;
  const std::string letters = letters_of_layers(
      *reader, *types, model.layers, {{"full_attention", 'a'}, {"sliding_attention", 'w'}});
  if (model.window > 0 && letters.find('a') != letters.npos)
    reader->refuse("layer_types", *types, "\"sliding_attention\" for all layers of sliding_window");
}

}  // namespace

ModelFamily mistral_family() {
  return rotary_decoder_family(
      inside_mistral3({.name = "mistral",
                       .title = "Mistral",
                       .architecture = "MistralForCausalLM",
                       .windows = "w",
                       .file_kv_heads = 8,
                       .file_context = 131072,
                       .window_keys = WindowKeys::kAll,
                       .more_keys = mistral_keys,
                       .gguf = GgufLayout{.architecture = "llama", .pairs_rows = true}}));
}

ModelFamily ministral3_family() {
  return rotary_decoder_family(inside_mistral3(
      {.name = "ministral3",
       .title = "Ministral 3",
       .architecture = "Ministral3ForCausalLM",
       .scales_queries = true,
       .windows = "w",
       .file_kv_heads = 8,
       .file_head_size = 128,
       .file_context = 262144,
       .file_epsilon = 1e-5,
       .file_window = 0,
       .file_requires_scaling = true,
       .window_keys = WindowKeys::kAll,
       .gguf =
           GgufLayout{.architecture = "mistral3", .pairs_rows = true, .scales_queries = true}}));
}

}  // namespace hybrid_trainer
