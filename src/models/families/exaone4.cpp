#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

constexpr const char *kExaoneWindow = "sliding_window", *kExaoneTypes = "layer_types",
                     *kExaonePeriod = "sliding_window_pattern";

void read_exaone4_layers(ConfigReader& reader, ModelConfig& model) {
  reader.read_nullable(model.window, kExaoneWindow, 4096);
  const char full = model.window > 0 ? 'n' : 'a';
  std::string letters(static_cast<std::size_t>(model.layers), full);
  const json::value* const types = reader.find(kExaoneTypes);
  if (types != nullptr) {
    reader.know(kExaonePeriod);
    letters = letters_of_layers(reader, *types, model.layers,
                                {{"full_attention", full}, {"sliding_attention", 'w'}});
    if (model.window == 0 && letters.find('w') != letters.npos)
      reader.problem(concat(kExaoneTypes, ": got sliding_attention, but ", kExaoneWindow,
                            " is null; set it, or use full_attention"));
  } else if (model.window > 0) {
    std::int64_t period = 4;
    reader.read(period, kExaonePeriod, 4);
    for (std::size_t i = 0; i < letters.size(); ++i)
      if ((static_cast<std::int64_t>(i) + 1) % period != 0) letters[i] = 'w';
  }
  model.window_layers = period_of(letters);
}

void exaone4_keys(ConfigKeys& keys, ModelConfig& model) {
  if (ConfigReader* const reader = keys.reader()) return read_exaone4_layers(*reader, model);
  const std::string letters = repeated(model.window_layers, model.layers);
  const bool is_hybrid = letters.find('n') != letters.npos || model.window > 0;
  if (is_hybrid && letters.find('a') != letters.npos)
    throw DataError(concat(
        "a folder of an exaone4 model cannot store model.window_layers=", model.window_layers,
        ": with a window or unrotated layers, layers without a window do not "
        "rotate; want n in place of a"));
  json::array types;
  for (const char letter : letters)
    types.emplace_back(is_hybrid && letter == 'w' ? "sliding_attention" : "full_attention");
  json::object& config = keys.written();
  config[kExaoneTypes] = std::move(types);
  config[kExaoneWindow] =
      is_hybrid ? json::value(model.window > 0 ? model.window : model.context) : json::value();
}

// Source: llama.cpp, src/models/exaone4.cpp: only the 32B model, of 64 layers, has windows.
constexpr std::int64_t kGgufHybridDepth = 64;

std::string exaone4_difference(const ModelConfig& model) {
  if (model.heads * model.head_size != model.width)
    return "llama.cpp's EXAONE 4 has heads of width / heads channels (model.head_size)";
  const bool is_hybrid = model.layers == kGgufHybridDepth;
  if (is_hybrid != (model.window > 0))
    return "llama.cpp's EXAONE 4 has a sliding window if and only if it has 64 layers "
           "(model.window, "
           "model.layers)";
  for (std::int64_t i = 0; i < model.layers; ++i)
    if ((kind_of_layer(model.window_layers, i) == 'a') == is_hybrid)
      return "llama.cpp's EXAONE 4 rotates the layers with a window, or all layers if none has one "
             "(model.window_layers)";
  return "";
}

}  // namespace

/// Norms follow the branches. In models with a window, layers without it do not rotate.
ModelFamily exaone4_family() {
  return rotary_decoder_family(
      {.name = "exaone4",
       .title = "EXAONE 4",
       .architecture = "Exaone4ForCausalLM",
       .query_key_norm = true,
       .norms = {.attention = "",
                 .after_attention = "post_attention_layernorm",
                 .feed_forward = "",
                 .after_feed_forward = "post_feedforward_layernorm"},
       .windows = "wwwn",
       .letters = "wan",
       .file_kv_heads = 32,
       .file_context = 2048,
       .file_epsilon = 1e-5,
       .more_keys = exaone4_keys,
       .gguf = GgufLayout{.architecture = "exaone4",
                          .refuses_window = true,
                          .names = {{"post_attention_layernorm", "post_attention_norm"}},
                          .difference = exaone4_difference,
                          .window_period = 4,
                          .window_depth = kGgufHybridDepth}});
}

}  // namespace hybrid_trainer
