#include "src/hugging_face/layer_letters.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string letters_of_layers(ConfigReader& reader, const boost::json::value& types,
                              std::int64_t layers, const LayerWords& words) {
  std::string letters;
  const boost::json::array none, &list = types.is_array() ? types.get_array() : none;
  const auto want = concat("\"", words[0].first, "\" or \"", words[1].first, "\"");
  for (const boost::json::value& type : list) {
    const auto is_it = [&](const auto& word) { return type == boost::json::value(word.first); };
    const auto found = std::ranges::find_if(words, is_it);
    if (found == words.end()) {
      reader.refuse(concat("layer_types[", letters.size(), "]"), type, want);
      return std::string(static_cast<std::size_t>(layers), words[1].second);
    }
    letters += found->second;
  }
  if (static_cast<std::int64_t>(letters.size()) == layers) return letters;
  reader.refuse("layer_types", types, concat(want, " for each of the ", layers, " layers"));
  return std::string(static_cast<std::size_t>(layers), words[1].second);
}

std::string period_of(const std::string& letters) {
  for (std::size_t length = 1; length < letters.size(); ++length) {
    bool repeats = true;
    for (std::size_t i = length; i < letters.size(); ++i)
      repeats = repeats && letters[i] == letters[i - length];
    if (repeats) return letters.substr(0, length);
  }
  return letters;
}

}  // namespace hybrid_trainer
