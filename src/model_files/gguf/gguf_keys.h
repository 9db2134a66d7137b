#pragma once

#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/models/model_config.h"
#include "src/gguf/gguf_writer.h"

namespace hybrid_trainer {

/// Returns the intended decimal number: files store f32, which cannot represent 1e-6.
double as_written(double value);

/// Reads the keys of a file's architecture, "llama.block_count" by the name "block_count", and
/// remembers which ones were read.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  /// Returns the full key, and marks it as read.
  std::string key(const char* name) const;
  /// Returns a value. Without `missing`, throws DataError if the key is absent.
  std::int64_t count(const char* name) const;
  double number(const char* name) const;
  std::int64_t count(const char* name, std::int64_t missing) const;
  double number(const char* name, double missing) const;
  /// Returns a value for each layer; a file may have one for all.
  std::vector<std::int64_t> counts_of_layers(const char* name) const;
  /// Returns the number of layers. Throws DataError if it is not between 1 and kMaxLayers.
  std::int64_t layers() const;
  /// Returns whether each layer has a window. The pattern in the file is a list, or the period at
  /// which layers with full attention repeat. Without a list, the layer with full attention is the
  /// last or the first of each period.
  std::vector<bool> windows(std::int64_t layers, std::int64_t usual,
                            bool full_is_last = true) const;
  /// Throws DataError if an unread key would change results; warns of unknown keys.
  void check_unread() const;
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_missing(const char* name) const;

 private:
  const GgufFile& file_;
  std::string architecture_;
  mutable std::set<std::string> read_;  // names
};

boost::json::array layer_types_of(const std::vector<bool>& has_window);

/// Derives config.json from the file of a Gemma 4 model. Source: llama.cpp, src/models/gemma4.cpp
/// and conversion/gemma.py.
boost::json::object gemma4_config(const GgufKeys& keys);
/// Adds the values for the sizes of a Gemma 4 model.
void add_gemma4_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values);
/// Returns the divisors of the angles in layers without a window: large ones stop the rotation.
std::vector<float> gemma4_divisors(const ModelConfig& model);

}  // namespace hybrid_trainer
