#pragma once

#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Returns the default of data.sequence_length for fine-tuning on rows.
std::int64_t usual_row_length(const ModelConfig& model);

/// Returns the initial configuration for fine-tuning a Hugging Face folder. The method `full`
/// trains all weights, `lora` and `dora` adapters on a base in 16 bits, `qlora` adapters on a
/// quantized base. With qlora, weights that are already quantized, in a folder or in the blocks of
/// a GGUF file, keep their format. Throws UsageError, MissingInput, DataError.
HybridTrainerConfig fine_tuning_config(const ModelFolder& folder, const std::string& method);

/// Configures adapters of rank 16 and alpha 32 for the method lora, dora or qlora, on the parts that
/// the family lists, or else on the whole model. The base is in bf16, with qlora in `base_of_qlora`.
/// Changes nothing for `full` or an empty method. Throws UsageError for another one.
void set_method(HybridTrainerConfig& config, const std::string& method,
                const std::string& base_of_qlora = "nf4");

/// Throws UsageError if the settings amount to another method, or ask for another quantization of
/// the base than the folder's.
void check_method(const std::string& method, const HybridTrainerConfig& config,
                  const ModelFolder& folder);

/// Returns the method that a run's configuration amounts to.
std::string method_of_run(const HybridTrainerConfig& run);

/// Throws UsageError if the resumed run was started with another method. `sets_base`: lora.base is
/// set, so lora may use a quantized base.
void check_method_of_run(const std::string& method, const HybridTrainerConfig& run, bool sets_base);

}  // namespace hybrid_trainer
