#include "src/models/families/families.h"
#include "src/models/families/rotary_decoder.h"
#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

namespace {

constexpr const char *kRotates = "no_rope_layers", *kSmolTypes = "layer_types",
                     *kSmolWindow = "sliding_window", *kUsesWindow = "use_sliding_window";

char smollm3_letter(bool rotates, bool has_window) {
  if (rotates) return has_window ? 'w' : 'a';
  return has_window ? 'v' : 'n';
}

/// Reads no_rope_layers (1: rotates), or else the interval of layers that do not rotate.
std::vector<bool> read_rotating_layers(ConfigReader& reader, std::int64_t layers) {
  std::int64_t interval = 4;
  reader.read(interval, "no_rope_layer_interval", 4);
  std::vector<bool> rotate;
  for (std::int64_t i = 0; i < layers; ++i) rotate.push_back((i + 1) % interval != 0);
  const json::value* const value = reader.find(kRotates);
  if (value == nullptr) return rotate;
  const json::array* const list = value->if_array();
  const bool is_long = list != nullptr && std::ssize(*list) >= layers;
  for (std::size_t i = 0; is_long && i < rotate.size(); ++i) {
    const json::value& flag = (*list)[i];
    if (flag != json::value(0) && flag != json::value(1)) {
      reader.refuse(concat(kRotates, "[", i, "]"), flag, "0 or 1");
      return rotate;
    }
    rotate[i] = flag == json::value(1);
  }
  if (!is_long) reader.refuse(kRotates, *value, concat("a list of ", layers, " numbers, 0 or 1"));
  return rotate;
}

void read_smollm3_layers(ConfigReader& reader, ModelConfig& model) {
  const std::vector<bool> rotate = read_rotating_layers(reader, model.layers);
  bool uses_window = false;
  reader.read(uses_window, kUsesWindow, 0);
  reader.read_nullable(model.window, kSmolWindow, 0);
  reader.know("max_window_layers");  // Qwen's
  const bool has_windows = uses_window && model.window > 0;
  if (!has_windows) model.window = 0;
  std::string letters;
  for (const bool rotates : rotate) letters += smollm3_letter(rotates, has_windows && !rotates);
  if (const json::value* types = reader.find(kSmolTypes)) {
    const std::string windows = letters_of_layers(
        reader, *types, model.layers, {{"full_attention", 'a'}, {"sliding_attention", 'w'}});
    if (!has_windows && windows.find('w') != windows.npos)
      reader.problem(concat(kSmolTypes, ": got sliding_attention, but ", kUsesWindow, " or ",
                            kSmolWindow, " is not set; set both, or want full_attention"));
    for (std::size_t i = 0; i < letters.size(); ++i)
      letters[i] = smollm3_letter(rotate[i], has_windows && windows[i] == 'w');
  }
  model.window_layers = period_of(letters);
}

void smollm3_keys(ConfigKeys& keys, ModelConfig& model) {
  if (ConfigReader* const reader = keys.reader()) return read_smollm3_layers(*reader, model);
  json::array rotate, types;
  bool uses_window = false;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const char letter = kind_of_layer(model.window_layers, i);
    const bool has_window = model.window > 0 && (letter == 'w' || letter == 'v');
    uses_window = uses_window || has_window;
    rotate.emplace_back(letter == 'w' || letter == 'a' ? 1 : 0);
    types.emplace_back(has_window ? "sliding_attention" : "full_attention");
  }
  json::object& config = keys.written();
  config[kRotates] = std::move(rotate);
  config[kSmolTypes] = std::move(types);
  config[kUsesWindow] = uses_window;
  config[kSmolWindow] = uses_window ? json::value(model.window) : json::value();
}

// Source: llama.cpp, src/models/smollm3.cpp: n_no_rope_layer_step.
std::string smollm3_difference(const ModelConfig& model) {
  if (model.rope_scaling.type == "llama3")
    return "llama.cpp's SmolLM3 does not support model.rope_scaling.type=llama3";
  if (model.window > 0) return "llama.cpp's SmolLM3 attends to all tokens, without model.window";
  for (std::int64_t i = 0; i < model.layers; ++i)
    if (kind_of_layer(model.window_layers, i) != ((i + 1) % 4 == 0 ? 'n' : 'a'))
      return "llama.cpp's SmolLM3 rotates all but every fourth layer (model.window_layers=aaan)";
  return "";
}

}  // namespace

/// Every fourth layer does not rotate. Layers may have a window, by default those.
ModelFamily smollm3_family() {
  return rotary_decoder_family(
      {.name = "smollm3",
       .title = "SmolLM3",
       .architecture = "SmolLM3ForCausalLM",
       .windows = "aaan",
       .letters = "wavn",
       .attention_bias = true,
       .mlp_bias = true,
       .file_kv_heads = 4,
       .file_context = 32768,
       .file_theta = 2e6,
       .file_tied_head = true,
       .more_keys = smollm3_keys,
       .gguf = GgufLayout{
           .architecture = "smollm3", .pairs_rows = true, .difference = smollm3_difference}});
}

}  // namespace hybrid_trainer
