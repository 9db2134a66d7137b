#pragma once

#include <functional>
#include <utility>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// Types that weights are written as: f32, f16, bf16, q8_0, q4_0.
const std::vector<std::string>& gguf_type_names();

/// Tokens, templates and license in a file.
struct GgufTexts {
  const Tokenizer& tokenizer;
  /// See src/model_files/hugging_face/generation_config.h: all its ends are written, others if the tokenizer's files name no
  /// token.
  std::string token_ids{};
  std::vector<std::pair<std::string, std::string>> license{};  // by key, general.license and others
  std::vector<std::pair<std::string, double>> sampling{};      // by key, general.sampling.temp, …
};

/// How many tensors were written in each type.
using GgufTypes = std::map<std::string, std::int64_t>;

/// Writes a model as one file for llama.cpp and Ollama, weight by weight: matrices in the type of
/// that name, vectors and positions in f32; embedding and head of a q4_0 file in q8_0, and f16
/// if rows are no whole blocks. Adapters are left out. The file appears whole or not at all. Throws
/// DataError if llama.cpp has no such architecture, no such tokenizer, or would compute something
/// else; CannotCreate if `path` exists, IoError.
GgufTypes export_gguf(LanguageModel& model, const GgufTexts& texts, const std::string& type,
                      const std::filesystem::path& path, const Stream& stream);

/// Writes a folder of PEFT over a model of this shape as one file, which llama.cpp adds to the model's
/// own (--lora). Throws DataError where such a file cannot tell of the adapter: DoRA, ranks or scales of
/// their own, weights beside adapters; else as export_gguf.
void export_gguf_adapter(const std::filesystem::path& folder, const ModelConfig& model,
                         const std::filesystem::path& path);

}  // namespace hybrid_trainer
