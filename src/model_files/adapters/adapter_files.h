#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/models/lora.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

/// Adapters in PEFT's format: adapter_config.json and adapter_model.safetensors.

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterTensors = "adapter_model.safetensors";
/// File with the class names of a fully trained classifier, {"0": "cat"}. PEFT does not store them.
inline constexpr const char* kAdapterLabels = "id2label.json";
/// Key of ModelConfig::problem_type in this file.
inline constexpr const char* kProblemType = "problem_type";

/// Writes a folder atomically that PEFT opens with `base`, a Hugging Face folder or name. Fully
/// trained weights become modules_to_save; linear layers after pooling keep their own folders, as
/// in sentence-transformers. Prints a warning about modules that PEFT does not support. `finish` may
/// write further files to the folder before it appears at its path. Throws CannotCreate, IoError.
void write_adapter(Network& network, const ModelConfig& model, const LoraConfig& config,
                   const std::string& base, const fs::path& folder, const Stream& stream,
                   const ModelRegistry& registry = model_families(),
                   const std::function<void(const fs::path&)>& finish = {});

bool holds_adapter(const fs::path& folder);

/// Returns "; these subfolders contain adapters: …" if the folder has named adapters of PEFT, or
/// "".
std::string adapters_hint(const fs::path& folder);

struct AdapterFolder {
  /// Settings of all adapters: the largest rank, and targets as names.
  LoraConfig config;
  std::string base;    // base_model_name_or_path; may be empty
  std::string task{};  // task_type; may be empty
  /// Weights that the adapter changes in addition to linear maps, by their names in the base's
  /// folder: fully trained weights (modules_to_save), and the head and token table if they have
  /// adapters.
  std::vector<std::string> extra_weights{};
  bool unties_head = false;     // the base's tied head becomes a separate weight
  std::int64_t vocabulary = 0;  // rows of a replaced token table; 0 if it is not replaced
  /// Returns the number of rows of the replaced classifier with this name prefix; 0 without one.
  std::int64_t classes_of(const std::string& classifier) const;
  std::map<std::string, std::int64_t> extra_weight_rows{};  // rows of replaced weights
  std::vector<ClassLabel> labels{};  // from kAdapterLabels; empty without the file
  std::string problem_type{};        // from kAdapterLabels; may be empty
};

/// Reads the configuration of an adapter folder. Warns of unknown keys. Throws MissingInput. Throws
/// DataError, which names every unsupported key (keys of other methods than lora, rslora and dora)
/// or a tensor that adapter_config.json does not include.
AdapterFolder read_adapter_config(const fs::path& folder);

/// Receives f32 values on the host in a weight's shape.
using ValuesCallback = std::function<void(Parameter& parameter, const Tensor& values)>;

/// Reads the values of the model's adapters, which were added with the folder's config. Pads
/// adapters of a smaller rank with zeros, which training does not change. Rescales B if an
/// adapter's scale differs from the config's. `take` receives each weight of extra_weights and each
/// linear layer after pooling; null writes the layers to their masters. Throws MissingInput. Throws DataError if a tensor is missing, has another shape or belongs to no
/// adapter, or if `take` is null and there are extra weights.
void read_adapter_weights(const fs::path& folder, Network& network, const ModelConfig& model,
                          const Stream& stream, const ModelRegistry& registry = model_families(),
                          const ValuesCallback& take = {});

}  // namespace hybrid_trainer
