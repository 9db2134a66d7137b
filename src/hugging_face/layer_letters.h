#pragma once

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// As in ModelConfig's range: lists of layers are made of no more.
inline constexpr std::int64_t kMostLayers = 1000;

/// Words of layer_types and the letters that stand for them here, the words to name first.
using LayerWords = std::vector<std::pair<std::string, char>>;

/// The letters of layer_types; a problem of the reader where they are not one known word a layer.
std::string letters_of_layers(ConfigReader& reader, const boost::json::value& types,
                              std::int64_t layers, const LayerWords& words);
/// The shortest text that, repeated, has the letters.
std::string period_of(const std::string& letters);

}  // namespace hybrid_trainer
