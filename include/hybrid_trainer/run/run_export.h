#pragma once

#include "hybrid_trainer/run/run_files.h"

namespace hybrid_trainer {

/// Writes the model of a run, without adapters, as a Hugging Face folder, rounded to `dtype`, or else
/// to export_dtype; returns that. Throws as export_hugging_face.
DType export_model(const TrainedRun& run, const std::filesystem::path& output,
                   std::optional<DType> dtype, const Stream& stream);

/// Writes the adapters of a run as PEFT opens them over the run's base. Throws ConfigError where the
/// run has none; CannotCreate, IoError.
void export_adapter(const TrainedRun& run, const std::filesystem::path& output,
                    const Stream& stream);

struct MergedExport {
  std::int64_t step = 0;
  double largest_logit = 0, largest_change = 0;  // on random tokens
  DType dtype = DType::kF32;                     // of the tensors
  std::vector<std::string> warnings{};           // of TrainedRun
};

/// Writes a Hugging Face folder of the run's base with its adapters merged into the weights: made
/// in f32 from the base's own files, whatever lora.base was in training, and rounded once to
/// `dtype`, or else to export_dtype. The logits are compared with those of the model as it was trained.
/// Throws ConfigError where the run has no adapters; as load_trained_run and export_hugging_face.
MergedExport export_merged(const std::filesystem::path& run, const std::filesystem::path& output,
                           RunWeights weights, std::optional<DType> dtype = {});

/// Merges a folder of PEFT over `base`, or else over the folder that it names.
MergedExport export_merged_adapter(const std::filesystem::path& folder,
                                   const std::filesystem::path& base,
                                   const std::filesystem::path& output,
                                   std::optional<DType> dtype = {});

}  // namespace hybrid_trainer
