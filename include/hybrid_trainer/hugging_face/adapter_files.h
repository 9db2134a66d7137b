#pragma once

#include <filesystem>
#include <string>

#include "hybrid_trainer/models/lora.h"

namespace hybrid_trainer {

/// Adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors.

inline constexpr const char* kAdapterTensors = "adapter_model.safetensors";

/// Writes a folder that PEFT opens over `base`, a Hugging Face folder or name. The folder appears
/// whole or not at all. `config`: of the model's adapters. Throws CannotCreate, IoError.
void write_adapter(LanguageModel& model, const LoraConfig& config, const std::string& base,
                   const std::filesystem::path& folder, const Stream& stream);

/// Whether the folder holds an adapter.
bool holds_adapter(const std::filesystem::path& folder);

struct AdapterFolder {
  LoraConfig config;
  std::string base;  // base_model_name_or_path; may be empty
};

/// What an adapter_config.json says. Throws MissingInput, or DataError that names every key that
/// asks for something else than lora, rslora or dora.
AdapterFolder read_adapter_config(const std::filesystem::path& folder);

/// Takes the values of the model's adapters, which were added by the folder's config. Throws
/// MissingInput, or DataError where a tensor is missing, is of another shape, or belongs to none.
void read_adapter_weights(const std::filesystem::path& folder, LanguageModel& model,
                          const Stream& stream);

}  // namespace hybrid_trainer
