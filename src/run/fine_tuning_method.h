#pragma once

#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// data.sequence_length of rows that a model learns from, if nothing else is set.
std::int64_t usual_row_length(const ModelConfig& model);

/// The configuration that a fine-tuning run of a Hugging Face folder begins with, by a method: full
/// trains all weights, lora and dora adapters on a base in 16 bits, qlora on a quantized base. Weights
/// that are quantized already, in a folder or in the blocks of a GGUF file, stay so with qlora. Throws
/// UsageError, MissingInput, DataError.
HybridTrainerConfig fine_tuning_config(const ModelFolder& folder, const std::string& method);

/// Makes adapters of rank 16 and alpha 32 of a method lora, dora or qlora: on the parts that the family names
/// for that, whose weights are held as `base`, or else on all linear maps, and all weights. Nothing with
/// full or without a method. Throws UsageError of another one.
void set_method(HybridTrainerConfig& config, const std::string& method,
                const std::string& base_of_qlora = "nf4");

/// Throws UsageError where settings have made another method of it, or want a base in another
/// quantized form than the folder's.
void check_method(const std::string& method, const HybridTrainerConfig& config,
                  const ModelFolder& folder);

/// The method that a run's configuration amounts to.
std::string method_of_run(const HybridTrainerConfig& run);

/// Throws UsageError where a run that goes on was begun by another method; `sets_base`: whether
/// lora.base is set, so that lora may be beside quantized weights.
void check_method_of_run(const std::string& method, const HybridTrainerConfig& run, bool sets_base);

}  // namespace hybrid_trainer
