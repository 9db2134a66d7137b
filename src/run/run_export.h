#pragma once

#include <map>

#include "src/run/run_files.h"

namespace hybrid_trainer {

/// Writes the model of a run, without adapters that are not merged, as a Hugging Face folder.
/// Rounds to `dtype` or, if it is not set, to export_dtype, and returns the dtype. Throws like
/// export_hugging_face.
DType export_model(const TrainedRun& run, const std::filesystem::path& output,
                   std::optional<DType> dtype, const Stream& stream);

/// Writes the adapters in PEFT's format. Throws ConfigError if none exist, CannotCreate, IoError.
void export_adapter(const TrainedRun& run, const std::filesystem::path& output,
                    const Stream& stream);

/// Comparison of the exported and the trained model: of their logits on random tokens, or of their
/// outputs for a whole text. All values are 0 if nothing was compared.
struct LogitChange {
  double largest_logit = 0, largest_change = 0;
  std::int64_t places = 0, same_choices = 0;  // all positions; those with the same best token

  std::string text() const;
};

struct MergedExport {
  std::int64_t step = 0;
  LogitChange change{};
  DType dtype = DType::kF32;            // dtype of the tensors
  std::vector<std::string> warnings{};  // see TrainedRun
};

/// Merges the adapters into the run's base and writes a Hugging Face folder. Merges in f32 from the
/// files of the base, independently of lora.base, and rounds once, to `dtype` or, if it is not set,
/// to export_dtype. Compares the logits of the written model and of the trained model. Throws
/// ConfigError if the run has no adapters; also throws like load_trained_run and
/// export_hugging_face.
MergedExport export_merged(const std::filesystem::path& run, const std::filesystem::path& output,
                           const RunWeights& weights, std::optional<DType> dtype = {});

/// Merges a PEFT folder into `base` or, if empty, the base that the folder names.
MergedExport export_merged_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base,
                                   const std::filesystem::path& output,
                                   std::optional<DType> dtype = {});

/// Writes the adapters of a run as one file that llama.cpp applies to a GGUF file of the base.
/// Throws ConfigError if the run has no adapters. Also throws like export_gguf_adapter.
void export_gguf_adapter_file(const TrainedRun& run, const std::filesystem::path& output,
                              const Stream& stream);

struct GgufExport {
  std::string type{};                           // requested type
  std::map<std::string, std::int64_t> types{};  // number of tensors per type
  std::uintmax_t bytes = 0;
  /// Tokens of a test text, encoded equally by the tokenizers of file and run; 0 if they differ.
  std::int64_t tokens = 0;
  LogitChange change{};
};

/// Writes the model of a run, with its adapters merged, as one file for llama.cpp and Ollama.
/// `type` is one of gguf_type_names; if empty, bf16 when the run's export_dtype is bf16, else f16.
/// Compares the outputs of the file's weights with the model's; afterwards the model has the file's
/// weights. Throws as export_gguf, and DataError if the run has no tokenizer or a quantized base.
GgufExport export_gguf_file(const TrainedRun& run, const std::string& type,
                            const std::filesystem::path& output, const Stream& stream);

}  // namespace hybrid_trainer
