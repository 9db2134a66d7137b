#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/config_keys.h"
#include "src/files/foreign_files.h"

namespace hybrid_trainer {

boost::json::value json_of(const ConfigValue& value);
/// The first of several keys with '|' between.
std::string first_key(std::string_view keys);

/// A config.json, or an object in it, with all its problems collected. Every key that is asked for is
/// known from then on.
class ConfigReader {
 public:
  /// `path` stands before the names of keys in messages.
  explicit ConfigReader(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  /// What an absent key or null means is `missing`; without it the key must be there. Several keys
  /// have '|' between.
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
  /// Null is 0, an absent key `missing`.
  template <class T>
  void read_nullable(T& to, const std::string& key, double missing) {
    const boost::json::value* value = object_.if_contains(key);
    read(to, key, value != nullptr && value->is_null() ? 0 : missing);
  }
  /// Refuses all values but these; an absent key is accepted.
  void expect(const std::string& key, const std::vector<ConfigValue>& values);
  /// The value under the first of the keys that is there and not JSON's null, or null: a null is as
  /// absent to everything but read_nullable.
  const boost::json::value* find(const std::string& keys);
  /// An object under the key, or null; anything else but JSON's null is a problem.
  const boost::json::object* find_object(const std::string& key);
  void know(const std::string& key) { known_.insert(key); }
  /// Sorts the keys that nobody asked for: those that change what is computed are problems, those that
  /// nobody knows are unknown.
  void sort_unread(ForeignFile file = ForeignFile::kConfig);
  void refuse(const std::string& key, const boost::json::value& value, const std::string& wanted);
  void problem(const std::string& text) { problems_ += "\n" + text; }
  /// Takes over what the reader of an object found.
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
