#pragma once

#include <utility>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// Supported weight types: f32, f16, bf16, q8_0, q4_0.
const std::vector<std::string>& gguf_type_names();

struct GgufTexts {
  const Tokenizer& tokenizer;
  /// Special tokens, see src/model_files/hugging_face/generation_config.h. All end tokens are
  /// written, and the others only if the tokenizer's files do not name them.
  std::string token_ids{};
  std::vector<std::pair<std::string, std::string>> license{};  // by key, general.license and others
  std::vector<std::pair<std::string, double>> sampling{};      // by key, general.sampling.temp, …
};

using GgufTypes = std::map<std::string, std::int64_t>;

/// Writes a model atomically as one file for llama.cpp and Ollama. Matrices have the type named by
/// `type`; vectors and position tables are f32. In a q4_0 file, embedding and head are q8_0.
/// Matrices whose rows are not whole blocks are f16. Adapters are omitted. Throws DataError if
/// llama.cpp has no equivalent architecture or tokenizer; CannotCreate if `path` exists; IoError.
GgufTypes export_gguf(LanguageModel& model, const GgufTexts& texts, const std::string& type,
                      const std::filesystem::path& path, const Stream& stream);

/// Writes a PEFT folder for a model of this shape as one file, which llama.cpp adds to the model's
/// file (--lora). Throws DataError if the format cannot express the adapter (DoRA, differing ranks
/// or scales, weights other than adapters); otherwise as export_gguf.
void export_gguf_adapter(const std::filesystem::path& folder, const ModelConfig& model,
                         const std::filesystem::path& path);

}  // namespace hybrid_trainer
