#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/config_keys.h"
#include "src/files/foreign_files.h"

namespace hybrid_trainer {

boost::json::value json_of(const ConfigValue& value);
/// Returns the first of several keys separated by '|'.
std::string first_key(std::string_view keys);

/// Reader of a config.json or an object in it. Collects all problems and the requested keys.
class ConfigReader {
 public:
  /// `path` is the prefix of keys in messages.
  explicit ConfigReader(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  /// Reads a key. An absent key or null means `missing`; if there is none, the key is required.
  /// Alternative keys are separated by '|'.
  template <class T>
  void read(T& to, const std::string& keys, std::optional<double> missing) {
    const boost::json::value* value = find(keys);
    if (missing && value == nullptr) {
      to = static_cast<T>(*missing);
    } else if (value == nullptr) {
      problem(concat(path_, keys, " is missing")), to = 1;
    } else if (!set(to, *value)) {
      refuse(keys, *value, wanted(to)), to = 1;
    }
  }
  /// Reads a key; null means 0, and an absent key means `missing`.
  template <class T>
  void read_nullable(T& to, const std::string& key, double missing) {
    const boost::json::value* value = object_.if_contains(key);
    read(to, key, value != nullptr && value->is_null() ? 0 : missing);
  }
  /// Rejects all values but these; accepts an absent key.
  void expect(const std::string& key, const std::vector<ConfigValue>& values);
  /// Returns the value of the first of the keys that is neither absent nor null, or nullptr. Only
  /// read_nullable distinguishes null from absent.
  const boost::json::value* find(const std::string& keys);
  /// Returns the object under the key, or nullptr; reports a problem for other types except null.
  const boost::json::object* find_object(const std::string& key);
  void know(const std::string& key) { known_.insert(key); }
  /// Adds each unrequested key to the problems if it affects results, else to the unknown keys.
  void sort_unread(ForeignFile file = ForeignFile::kConfig);
  void refuse(const std::string& key, const boost::json::value& value, const std::string& wanted);
  void problem(const std::string& text) { problems_ += "\n" + text; }
  /// Adds the findings of an inner object's reader.
  void add(const ConfigReader& inner);
  const std::string& problems() const { return problems_; }
  const std::vector<std::string>& unknown() const { return unknown_; }
  const std::set<std::string>& known() const { return known_; }

 private:
  static bool set(bool& to, const boost::json::value& value);
  static bool set(double& to, const boost::json::value& value);
  static bool set(std::int64_t& to, const boost::json::value& value);
  static const char* wanted(bool) { return "true or false"; }
  static const char* wanted(double) { return "a number"; }
  static const char* wanted(std::int64_t) { return "a whole number from 1 to 2147483647"; }
  const boost::json::object& object_;
  std::string path_;
  std::set<std::string> known_;
  std::string problems_;
  std::vector<std::string> unknown_;
};

/// The upper bound of ModelConfig's layers, which limits lists by layer.
inline constexpr std::int64_t kMaxLayers = 1000;

/// Words of layer_types with their letters, preferred words first.
using LayerWords = std::vector<std::pair<std::string, char>>;

/// Returns the letters of layer_types; reports a problem unless it has one known word per layer.
std::string letters_of_layers(ConfigReader& reader, const boost::json::value& types,
                              std::int64_t layers, const LayerWords& words);
/// Returns the shortest text whose repetition gives the letters.
std::string period_of(const std::string& letters);

}  // namespace hybrid_trainer
