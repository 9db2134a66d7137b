#pragma once

#include <variant>

#include "hybrid_trainer/models/model_config.h"

namespace boost::json {
class object;
}

namespace hybrid_trainer {

class ConfigReader;

using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::nullptr_t>;

/// Reads or writes a Hugging Face config.json. A family lists its keys once, in writing order:
///   void my_keys(ConfigKeys& keys, ModelConfig& model) {
///     keys.member("num_hidden_layers", model.layers);
///     keys.member("rms_norm_eps", model.norm_epsilon, 1e-6);
///     keys.fixed("hidden_act", {"silu", "swish"});
///   }
/// Collects all problems of a file instead of stopping at the first one.
class ConfigKeys {
 public:
  explicit ConfigKeys(ConfigReader& reader) : reader_(&reader) {}
  explicit ConfigKeys(boost::json::object& written) : written_(&written) {}

  /// Reads or writes a member. `missing`: value for an absent key or null; if it is empty, the key
  /// is required. `key` may list alternative names separated by '|', of which the first is written.
  template <class T>  // bool, std::int64_t or double
  void member(const std::string& key, T& value, std::optional<double> missing = {});
  /// Reads or writes a member. Reads null as 0, and an absent key as `missing`.
  template <class T>  // std::int64_t or double
  void nullable(const std::string& key, T& value, double missing);
  /// Read or write a member x that files store as 1/x or 1/√x; 1 if the key is absent.
  void reciprocal(const std::string& key, double& value);
  void reciprocal_root(const std::string& key, double& value);
  /// Reads or writes a member as a Boolean: √width for true, 1 for false. Other values throw
  /// DataError.
  void root_of_width(const std::string& key, double& value, std::int64_t width);
  /// Rejects a file unless the key is absent or has one of `values`. Writes the first value, after
  /// all other keys.
  void fixed(const std::string& key, const std::vector<ConfigValue>& values);
  /// Rejects a file unless the key is absent, null or equal to `value`. Writes null.
  void derived(const std::string& key, const ConfigValue& value);
  /// Writes a key and ignores its value in files.
  void write_only(const std::string& key, const ConfigValue& value);
  /// Accepts keys of files that do not affect the computation.
  void inert(const std::vector<std::string>& keys);

  /// Checks the members read so far and returns whether all are valid. Later calls return the same
  /// result. Call it before you read keys with one value per layer.
  bool fit(const ModelConfig& model);

  /// Returns the reader of the file, or null if this object writes a file.
  ConfigReader* reader() const { return reader_; }
  boost::json::object& written() const { return *written_; }
  /// Returns the keys to write last, with their values.
  const std::vector<std::pair<std::string, ConfigValue>>& last() const { return last_; }

 private:
  ConfigReader* reader_ = nullptr;
  boost::json::object* written_ = nullptr;
  std::optional<bool> fits_;
  std::vector<std::pair<std::string, ConfigValue>> last_;
};

}  // namespace hybrid_trainer
