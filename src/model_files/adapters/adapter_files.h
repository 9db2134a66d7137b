#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/models/lora.h"

namespace hybrid_trainer {

/// Adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors.

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterTensors = "adapter_model.safetensors";
/// Names of the classes of a classifier that was trained whole, for which PEFT has no place: {"0": "cat"}.
inline constexpr const char* kAdapterLabels = "id2label.json";

/// Writes a folder that PEFT opens over `base`, a Hugging Face folder or name. The folder appears
/// whole or not at all. `config`: of the model's adapters. Weights that were trained whole beside them are
/// modules_to_save. Warns of modules over which PEFT opens none.
/// Throws CannotCreate, IoError.
void write_adapter(Network& network, const ModelConfig& model, const LoraConfig& config,
                   const std::string& base, const std::filesystem::path& folder,
                   const Stream& stream, const ModelRegistry& registry = model_families());
inline void write_adapter(LanguageModel& model, const LoraConfig& config, const std::string& base,
                          const std::filesystem::path& folder, const Stream& stream,
                          const ModelRegistry& registry = model_families()) {
  write_adapter(model, model.config(), config, base, folder, stream, registry);
}

/// Whether the folder holds an adapter.
bool holds_adapter(const std::filesystem::path& folder);

/// "; these folders in it hold adapters: …", as PEFT saves adapters that have a name; "" if none does.
std::string told_of_adapters_in(const std::filesystem::path& folder);

struct AdapterFolder {
  /// Settings of all its adapters: rank is the largest one, targets are names.
  LoraConfig config;
  std::string base;  // base_model_name_or_path; may be empty
  /// Weights that it changes beside the adapters of linear maps, by their names in the base's
  /// folder: weights that were trained whole (modules_to_save), and the adapted head and token
  /// table.
  std::vector<std::string> weights_beside{};
  bool unties_head = false;     // a base's tied head becomes a weight of its own
  std::int64_t vocabulary = 0;  // rows of the token table among them; 0: there is none
  /// Rows of a classifier that it has whole, by the beginning of its name; 0: it has none.
  std::int64_t classes_of(const std::string& classifier) const;
  std::map<std::string, std::int64_t> rows_beside{};  // of weights_beside that are whole
  std::vector<ClassLabel> labels{};                   // of kAdapterLabels; empty without the file
};

/// Reads the configuration of an adapter folder. Warns of keys that nobody here knows. Throws
/// MissingInput, or DataError that names every key that asks for something else than lora, rslora
/// or dora, or a tensor that adapter_config.json does not tell of.
AdapterFolder read_adapter_config(const std::filesystem::path& folder);

/// Takes f32 values on the host in a weight's shape.
using ValuesTaker = std::function<void(Parameter& parameter, const Tensor& values)>;

/// Takes the values of the model's adapters, which were added by the folder's config. Adapters of
/// less than the config's rank are padded with zeros, which training leaves; B is scaled where an
/// adapter's own scale is another one. Throws MissingInput, or DataError where a tensor is missing, is
/// of another shape, or belongs to none. `take` gets each weight that weights_beside change; empty:
/// DataError if there are any.
void read_adapter_weights(const std::filesystem::path& folder, Network& network,
                          const ModelConfig& model, const Stream& stream,
                          const ModelRegistry& registry = model_families(),
                          const ValuesTaker& take = {});
inline void read_adapter_weights(const std::filesystem::path& folder, LanguageModel& model,
                                 const Stream& stream,
                                 const ModelRegistry& registry = model_families(),
                                 const ValuesTaker& take = {}) {
  read_adapter_weights(folder, model, model.config(), stream, registry, take);
}

}  // namespace hybrid_trainer
