#pragma once

#include <map>

#include "src/run/run_files.h"

namespace hybrid_trainer {

/// Writes a run's model as a Hugging Face folder, without unmerged adapters. Rounds to `dtype`, or
/// else export_dtype, and returns that. Throws as export_hugging_face.
DType export_model(const TrainedRun& run, const std::filesystem::path& output,
                   std::optional<DType> dtype, const Stream& stream);

/// Writes a run's adapters in PEFT's format. Throws ConfigError without any; CannotCreate, IoError.
void export_adapter(const TrainedRun& run, const std::filesystem::path& output,
                    const Stream& stream);

/// Difference of exported and trained model's logits on random tokens; 0 if there are no logits.
struct LogitChange {
  double largest_logit = 0, largest_change = 0;
  std::int64_t places = 0, same_choices = 0;  // positions; positions with the same top token

  /// Returns "; logits changed by at most …", with a verdict.
  std::string text() const;
};

struct MergedExport {
  std::int64_t step = 0;
  LogitChange change{};
  DType dtype = DType::kF32;            // of the tensors
  std::vector<std::string> warnings{};  // see TrainedRun
};

/// Merges the adapters into the run's base and writes a Hugging Face folder. Merges in f32 from the
/// base's own files, whatever lora.base was, and rounds once, to `dtype` or else to export_dtype.
/// Compares the logits of the written model with the trained model's. Throws ConfigError if the run
/// has no adapters; otherwise as load_trained_run and export_hugging_face.
MergedExport export_merged(const std::filesystem::path& run, const std::filesystem::path& output,
                           const RunWeights& weights, std::optional<DType> dtype = {});

/// Merges a PEFT folder into `base`, or if that is empty, into the base that the PEFT folder names.
MergedExport export_merged_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base,
                                   const std::filesystem::path& output,
                                   std::optional<DType> dtype = {});

/// Writes the adapters of a run as one file that llama.cpp applies to a GGUF file of the base.
/// Throws ConfigError if the run has none; otherwise as export_gguf_adapter.
void export_gguf_adapter_file(const TrainedRun& run, const std::filesystem::path& output,
                              const Stream& stream);

struct GgufExport {
  std::string type{};                           // requested
  std::map<std::string, std::int64_t> types{};  // number of tensors per type
  std::uintmax_t bytes = 0;
  std::int64_t tokens =
      0;  // length of a test text that the file's and the run's tokenizer encode identically; 0 if
          // they differ
  LogitChange change{};
};

/// Writes the model of a run, with its adapters merged, as one file for llama.cpp and Ollama.
/// `type` is one of gguf_type_names; if empty, bf16 when the run's export_dtype is bf16, else f16.
/// Compares the logits of the file's weights with the model's; afterwards the model has the file's
/// weights. Throws as export_gguf, and DataError if the run has no tokenizer or a quantized base.
GgufExport export_gguf_file(const TrainedRun& run, const std::string& type,
                            const std::filesystem::path& output, const Stream& stream);

}  // namespace hybrid_trainer
