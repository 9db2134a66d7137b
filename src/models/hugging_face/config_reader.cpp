#include "src/models/hugging_face/config_reader.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/models/decoder.h"

namespace hybrid_trainer {

json::value json_of(const ConfigValue& value) {
  return std::visit([](const auto& held) { return json::value(held); }, value);
}

std::string first_key(std::string_view keys) { return std::string(keys.substr(0, keys.find('|'))); }

const json::value* ConfigReader::find(const std::string& keys) {
  const std::size_t bar = keys.find('|');
  const std::string first = keys.substr(0, bar);
  know(first);
  const json::value* value = object_.if_contains(first);
  const json::value* other = bar == std::string::npos ? nullptr : find(keys.substr(bar + 1));
  return value == nullptr || value->is_null() ? other : value;
}

const json::object* ConfigReader::find_object(const std::string& key) {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) refuse(key, *value, "an object");
  return value->if_object();
}

void ConfigReader::expect(const std::string& key, const std::vector<ConfigValue>& values) {
  const json::value* value = find(key);
  if (value == nullptr) return;
  for (const ConfigValue& allowed : values) {
    if (*value == json_of(allowed)) return;
  }
  refuse(key, *value, json_line(json_of(values.front())));
}

void ConfigReader::sort_unread(ForeignFile file) {
  const UnreadKeys unread = sort_unread_keys(object_, file, known_);
  for (const std::string& text : unread.problems) problem(path_ + text);
  for (const std::string& key : unread.unknown) unknown_.push_back(path_ + key);
}

void ConfigReader::add(const ConfigReader& inner) {
  problems_ += inner.problems_;
  unknown_.insert(unknown_.end(), inner.unknown_.begin(), inner.unknown_.end());
}

void ConfigReader::refuse(const std::string& key, const json::value& value,
                          const std::string& wanted) {
  problem(concat(path_, key, ": got ", json_line(value).substr(0, 60), ", want ", wanted));
}

bool ConfigReader::set(bool& to, const json::value& value) {
  return value.is_bool() && (to = value.get_bool(), true);
}
bool ConfigReader::set(double& to, const json::value& value) {
  const std::optional<double> number = number_of(value);
  return number && !std::isnan(*number) && (to = *number, true);
}
bool ConfigReader::set(std::int64_t& to, const json::value& value) {
  const std::int64_t* const number = value.if_int64();
  const bool fits = number != nullptr && *number >= 1 && *number <= INT32_MAX;
  return fits && (to = *number, true);  // products of two of them fit, too
}

std::string letters_of_layers(ConfigReader& reader, const json::value& types, std::int64_t layers,
                              const LayerWords& words) {
  std::string letters;
  const json::array none, &list = types.is_array() ? types.get_array() : none;
  const auto want = concat("\"", words[0].first, "\" or \"", words[1].first, "\"");
  for (const json::value& type : list) {
    const auto is_it = [&](const auto& word) { return type == json::value(word.first); };
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

void set_letters(ConfigReader& reader, const char* key, const json::value& layers, char letter,
                 std::string& letters) {
  bool fits = layers.is_array();
  for (const json::value& layer : fits ? layers.get_array() : json::array()) {
    const std::int64_t index = layer.is_int64() ? layer.get_int64() : -1;
    const bool is_layer = index >= 0 && index < std::ssize(letters);
    if (is_layer) letters[static_cast<std::size_t>(index)] = letter;
    fits = fits && is_layer;
  }
  if (!fits)
    reader.refuse(key, layers, concat("a list of layers from 0 to ", std::ssize(letters) - 1));
}

std::string repeating_pattern(const std::string& letters) {
  const std::string period = period_of(letters);
  return 2 * period.size() > letters.size() ? letters : period;
}

std::string repeated(const std::string& pattern, std::int64_t layers) {
  std::string letters;
  for (std::int64_t i = 0; i < layers && !pattern.empty(); ++i)
    letters += kind_of_layer(pattern, i);
  return letters;
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
