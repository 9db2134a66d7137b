#pragma once

#include <variant>

#include "hybrid_trainer/models/model_config.h"

namespace boost::json {
class object;
}

namespace hybrid_trainer {

class ConfigReader;

/// A value in config.json.
using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::nullptr_t>;

/// The config.json of a Hugging Face folder, either one that is read or one that is written. A family
/// lists its keys once for both, in the order in which they are written:
///   void my_keys(ConfigKeys& keys, ModelConfig& model) {
///     keys.member("num_hidden_layers", model.layers);
///     keys.member("rms_norm_eps", model.norm_epsilon, 1e-6);
///     keys.fixed("hidden_act", {"silu", "swish"});
///   }
/// Problems of a file are collected.
class ConfigKeys {
 public:
  explicit ConfigKeys(ConfigReader& reader) : reader_(&reader) {}
  explicit ConfigKeys(boost::json::object& written) : written_(&written) {}

  /// Reads or writes a member. `missing`: meaning of an absent key or null; without it the key is
  /// required. Writes the first of several keys with '|' between.
  template <class T>  // bool, std::int64_t or double
  void member(const std::string& key, T& value, std::optional<double> missing = {});
  /// Reads or writes a member that is 0 if the key is null, and `missing` if it is absent.
  template <class T>  // std::int64_t or double
  void nullable(const std::string& key, T& value, double missing);
  /// Reads or writes a member x whose key holds 1/x, or 1/√x; 1 if it is absent.
  void reciprocal(const std::string& key, double& value);
  void reciprocal_root(const std::string& key, double& value);
  /// Reads or writes a member that is √width if the key is true, else 1. Writing throws DataError for
  /// other values.
  void root_of_width(const std::string& key, double& value, std::int64_t width);
  /// Refuses a file whose key has none of these values, of which the first is written behind all other
  /// keys. Accepts an absent key.
  void fixed(const std::string& key, const std::vector<ConfigValue>& values);
  /// Refuses a file whose key has another value, which is written as null.
  void derived(const std::string& key, const ConfigValue& value);
  /// Writes a key whose value in files has no meaning.
  void only_written(const std::string& key, const ConfigValue& value);
  /// Accepts keys of files that change nothing of what is computed here.
  void inert(const std::vector<std::string>& keys);

  /// Checks the ranges of the members that were read, once: true if all fit. Keys with lists of layers
  /// follow it.
  bool fit(const ModelConfig& model);

  /// The file that is read, or null.
  ConfigReader* reader() const { return reader_; }
  boost::json::object& written() const { return *written_; }
  /// Values that are written last.
  const std::vector<std::pair<std::string, ConfigValue>>& last() const { return last_; }

 private:
  ConfigReader* reader_ = nullptr;
  boost::json::object* written_ = nullptr;
  std::optional<bool> fits_;
  std::vector<std::pair<std::string, ConfigValue>> last_;
};

}  // namespace hybrid_trainer
