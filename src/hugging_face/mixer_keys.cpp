#include "src/hugging_face/mixer_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/python_floats.h"
#include "hybrid_trainer/models/decoder_spec.h"
#include "src/hugging_face/layer_letters.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr const char* kStepLimits = "time_step_limit";
constexpr const char* kIndices = "attn_layer_indices";
constexpr const char* kInterval = "full_attention_interval";

/// layer_types in the words of either version of transformers.
std::string letters_of_types(ConfigReader& reader, const json::value& types, std::int64_t layers,
                             char mixer) {
  LayerWords words{{"linear_attention", mixer}, {"full_attention", 'a'}};
  if (mixer == 'm') words.insert(words.end(), {{"mamba", 'm'}, {"attention", 'a'}});
  return letters_of_layers(reader, types, layers, words);
}

std::string letters_of_indices(ConfigReader& reader, std::int64_t layers, char mixer) {
  std::string letters(static_cast<std::size_t>(layers), mixer);
  const json::value* indices = reader.find(kIndices);
  if (indices == nullptr) return letters;
  const json::array none, &list = indices->is_array() ? indices->get_array() : none;
  bool fits = indices->is_array();
  for (const json::value& index : list) {
    const bool is_layer = index.is_int64() && index.get_int64() >= 0 && index.get_int64() < layers;
    if (is_layer) letters[static_cast<std::size_t>(index.get_int64())] = 'a';
    fits = fits && is_layer;
  }
  if (!fits) reader.refuse(kIndices, *indices, concat("a list of layers from 0 to ", layers - 1));
  return letters;
}

std::string letters_of_interval(ConfigReader& reader, std::int64_t layers, char mixer) {
  std::int64_t interval = 4;
  reader.read(interval, kInterval, 4);
  std::string letters(static_cast<std::size_t>(layers), mixer);
  for (std::int64_t i = interval - 1; i < layers; i += interval)
    letters[static_cast<std::size_t>(i)] = 'a';
  return letters;
}

void read_mixers(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout) {
  const std::int64_t layers = model.layers;
  std::string letters;
  if (layout.mixer_keys == MixerKeys::kAttentionLayers) {
    letters = letters_of_indices(reader, layers, layout.mixer);
  } else {
    letters = std::string(static_cast<std::size_t>(layers), layout.mixer);
    if (layout.mixer_keys == MixerKeys::kAttentionInterval)
      letters = letters_of_interval(reader, layers, layout.mixer);
    const json::value* types = reader.find("layer_types|layers_block_type");
    if (types != nullptr) letters = letters_of_types(reader, *types, layers, layout.mixer);
  }
  const std::string period = period_of(letters);
  model.mixers = 2 * period.size() > letters.size() ? letters : period;
}

/// Heads times their channels are what expand makes of the width.
void read_head_size(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout) {
  std::int64_t expand = 2;
  reader.read(expand, layout.expand_key, 2);
  StateSpaceConfig& sizes = model.state_space;
  const std::int64_t channels = expand * model.width,
                     heads = std::max<std::int64_t>(sizes.heads, 1);
  const json::value* value = reader.find(layout.head_size_key);
  const bool is_missing = value == nullptr;
  if ((is_missing && !layout.missing_head_size) || (value != nullptr && *value == "auto")) {
    sizes.head_size = channels / heads;
  } else {
    reader.read(sizes.head_size, layout.head_size_key, layout.missing_head_size);
  }
  if (model.mixers.find('m') == std::string::npos && !model.mixers.empty()) return;
  if (channels == heads * sizes.head_size) return;
  reader.problem(concat(layout.expand_key, ": got ", expand, ", which makes ", channels,
                        " channels of a width of ", model.width, ", and ", heads, " heads of ",
                        sizes.head_size, " are ", heads * sizes.head_size, "; want as many"));
}

void read_step_limits(ConfigReader& reader, StateSpaceConfig& sizes) {
  const json::value* value = reader.find(kStepLimits);
  if (value == nullptr) return;
  const json::array* list = value->if_array();
  const auto number = [&](std::size_t i) {
    return list != nullptr && list->size() == 2 ? number_of((*list)[i]) : std::nullopt;
  };
  const std::optional<double> least = number(0), most = number(1);
  if (!least || !most || !(*least >= 0) || !(*most > *least) || std::isinf(*least))
    return reader.refuse(kStepLimits, *value,
                         "two numbers from 0 on, the larger one last; it may be Infinity");
  sizes.least_step = *least;
  sizes.most_step = std::isinf(*most) ? 0 : *most;
}

json::array types_of(const ModelConfig& model, const HuggingFaceLayout& layout) {
  const bool is_old = layout.mixer_keys == MixerKeys::kLayerTypes;  // words that both versions know
  json::array types;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const bool attends = kind_of_layer(model.mixers, i) == 'a';
    types.emplace_back(attends ? (is_old ? "attention" : "full_attention")
                               : (is_old ? "mamba" : "linear_attention"));
  }
  return types;
}

}  // namespace

void read_mixer_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout) {
  if (layout.mixer_keys != MixerKeys::kNone) read_mixers(reader, model, layout);
  if (!layout.expand_key.empty()) {
    read_head_size(reader, model, layout);
    read_step_limits(reader, model.state_space);
  }
  for (const std::string& key : layout.inert) reader.know(key);
}

void write_mixer_keys(json::object& config, const ModelConfig& model,
                      const HuggingFaceLayout& layout) {
  if (layout.mixer_keys == MixerKeys::kAttentionLayers) {
    json::array indices;
    for (std::int64_t i = 0; i < model.layers; ++i)
      if (kind_of_layer(model.mixers, i) == 'a') indices.emplace_back(i);
    config[kIndices] = indices;
  } else if (layout.mixer_keys != MixerKeys::kNone) {
    config["layer_types"] = types_of(model, layout);
  }
  if (layout.expand_key.empty()) return;
  const StateSpaceConfig& sizes = model.state_space;
  const std::int64_t channels = sizes.heads * sizes.head_size;
  const bool is_told = channels % model.width == 0;
  if (!is_told && model.mixers.find('m') != std::string::npos)
    throw DataError(concat("a folder of a ", layout.model_type, " model cannot tell of ",
                           sizes.heads, " heads of ", sizes.head_size, ": their ", channels,
                           " channels must be a whole multiple of the width, ", model.width,
                           " (model.state_space.heads, head_size)"));
  config[layout.head_size_key] = sizes.head_size;
  if (is_told) config[layout.expand_key] = channels / model.width;
  if (sizes.least_step == 0 && sizes.most_step == 0) return;  // as where the key is missing
  const double most =
      sizes.most_step > 0 ? sizes.most_step : std::numeric_limits<double>::infinity();
  config[kStepLimits] = json::array{sizes.least_step, named_float(most)};
}

}  // namespace hybrid_trainer
