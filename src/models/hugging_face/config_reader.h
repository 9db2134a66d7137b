#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/config_keys.h"
#include "src/files/foreign_files.h"

namespace hybrid_trainer {

json::value json_of(const ConfigValue& value);
std::string first_key(std::string_view keys);

/// Reader of a config.json or of an object in it. Collects all problems and the requested keys.
class ConfigReader {
 public:
  /// `path` is the prefix of keys in messages.
  explicit ConfigReader(const json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  /// Reads a key. Uses `missing` for an absent key or null; if it is empty, the key is required.
  /// Alternative keys are separated by '|'.
  template <class T>
  void read(T& to, const std::string& keys, std::optional<double> missing) {
    const json::value* value = find(keys);
    if (missing && value == nullptr) {
      to = static_cast<T>(*missing);
    } else if (value == nullptr) {
      problem(concat(path_, keys, " is missing")), to = 1;
    } else if (!set(to, *value)) {
      refuse(keys, *value, wanted(to)), to = 1;
    }
  }
  /// Reads a key. Uses 0 for null, and `missing` for an absent key.
  template <class T>
  void read_nullable(T& to, const std::string& key, double missing) {
    const json::value* value = object_.if_contains(key);
    read(to, key, value != nullptr && value->is_null() ? 0 : missing);
  }
  /// Reports a problem unless the key is absent or has one of `values`.
  void expect(const std::string& key, const std::vector<ConfigValue>& values);
  /// Returns the value of the first key that is neither absent nor null, or nullptr. Only
  /// read_nullable distinguishes null from an absent key.
  const json::value* find(const std::string& keys);
  /// Returns the object, or nullptr. Reports a problem for a value other than an object or null.
  const json::object* find_object(const std::string& key);
  void know(const std::string& key) { known_.insert(key); }
  /// Reports each unread key: as a problem if it affects results, else as an unknown key.
  void sort_unread(ForeignFile file = ForeignFile::kConfig);
  void refuse(const std::string& key, const json::value& value, const std::string& wanted);
  void problem(const std::string& text) { problems_ += "\n" + text; }
  void add(const ConfigReader& inner);
  const std::string& problems() const { return problems_; }
  const std::vector<std::string>& unknown() const { return unknown_; }
  const std::set<std::string>& known() const { return known_; }

 private:
  static bool set(bool& to, const json::value& value);
  static bool set(double& to, const json::value& value);
  static bool set(std::int64_t& to, const json::value& value);
  static const char* wanted(bool) { return "true or false"; }
  static const char* wanted(double) { return "a number"; }
  static const char* wanted(std::int64_t) { return "a whole number from 1 to 2147483647"; }
  const json::object& object_;
  std::string path_;
  std::set<std::string> known_;
  std::string problems_;
  std::vector<std::string> unknown_;
};

/// Maximum of ModelConfig::layers, which limits lists with one element per layer.
inline constexpr std::int64_t kMaxLayers = 1000;

/// Words of layer_types and their letters. If a letter has several words, the first one is written.
using LayerWords = std::vector<std::pair<std::string, char>>;

/// Returns the letters of layer_types; reports a problem unless it has one known word per layer.
std::string letters_of_layers(ConfigReader& reader, const json::value& types, std::int64_t layers,
                              const LayerWords& words);
/// Sets the letters of the layers in a list; reports a problem for other values.
void set_letters(ConfigReader& reader, const char* key, const json::value& layers, char letter,
                 std::string& letters);
/// Returns the shortest text whose repetition gives the letters.
std::string period_of(const std::string& letters);
/// Returns the period of the letters, or all letters if they have less than two periods.
std::string repeating_pattern(const std::string& letters);
/// Returns the letters of all layers, given a pattern of letters; "" for an empty pattern.
std::string repeated(const std::string& pattern, std::int64_t layers);

}  // namespace hybrid_trainer
