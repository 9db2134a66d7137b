#pragma once

#include <map>

#include "src/run/run_files.h"

namespace hybrid_trainer {

/// Writes the model of a run, without adapters, as a Hugging Face folder, rounded to `dtype`, or else
/// to export_dtype; returns that. Throws as export_hugging_face.
DType export_model(const TrainedRun& run, const std::filesystem::path& output,
                   std::optional<DType> dtype, const Stream& stream);

/// Writes the adapters of a run as PEFT opens them over the run's base. Throws ConfigError where the
/// run has none; CannotCreate, IoError.
void export_adapter(const TrainedRun& run, const std::filesystem::path& output,
                    const Stream& stream);

/// Logits of an exported model compared with the trained one, on random tokens. Zeros for a network
/// without logits.
struct LogitChange {
  double largest_logit = 0, largest_change = 0;
  std::int64_t places = 0, same_choices = 0;  // where the likeliest next token stayed the same

  /// "; logits changed by at most …", with a verdict on it.
  std::string text() const;
};

struct MergedExport {
  std::int64_t step = 0;
  LogitChange change{};
  DType dtype = DType::kF32;            // of the tensors
  std::vector<std::string> warnings{};  // of TrainedRun
};

/// Writes a Hugging Face folder of the run's base with its adapters merged into the weights: made
/// in f32 from the base's own files, whatever lora.base was in training, and rounded once to
/// `dtype`, or else to export_dtype. The logits are compared with those of the model as it was trained.
/// Throws ConfigError where the run has no adapters; as load_trained_run and export_hugging_face.
MergedExport export_merged(const std::filesystem::path& run, const std::filesystem::path& output,
                           const RunWeights& weights, std::optional<DType> dtype = {});

/// Merges a folder of PEFT over `base`, or else over the folder that it names.
MergedExport export_merged_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base,
                                   const std::filesystem::path& output,
                                   std::optional<DType> dtype = {});

/// Writes the adapters of a run as one file for llama.cpp, which it adds to a file of the base. Throws
/// ConfigError where the run has none; as export_gguf_adapter.
void export_gguf_adapter_file(const TrainedRun& run, const std::filesystem::path& output,
                              const Stream& stream);

/// What was written as one GGUF file.
struct GgufExport {
  std::string type{};                           // asked for
  std::map<std::string, std::int64_t> types{};  // tensors in each type
  std::uintmax_t bytes = 0;
  std::int64_t tokens =
      0;  // of a text that the file's tokenizer encodes as the run's; 0: it differs
  LogitChange change{};
};

/// Writes the model of a run, with its adapters merged, as one file for llama.cpp and Ollama in the
/// type of that name (gguf_type_names; empty: bf16 of a run whose export_dtype is that, else f16). The
/// logits of what the file holds are compared with the model's: the model has those weights then.
/// Throws as export_gguf, and DataError where the run has no tokenizer or a quantized base.
GgufExport export_gguf_file(const TrainedRun& run, const std::string& type,
                            const std::filesystem::path& output, const Stream& stream);

}  // namespace hybrid_trainer
