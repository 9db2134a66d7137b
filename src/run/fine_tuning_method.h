#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Returns the default of data.sequence_length for fine-tuning on rows.
std::int64_t usual_row_length(const ModelConfig& model);

/// Returns the initial configuration for fine-tuning a Hugging Face folder. The method `full`
/// trains all weights, `lora` and `dora` train adapters on a base in 16 bits, and `qlora` trains
/// adapters on a quantized base. With qlora, weights that the folder or GGUF file already stores
/// quantized keep their format. Throws UsageError, MissingInput, DataError.
HybridTrainerConfig fine_tuning_config(const ModelFolder& folder, const std::string& method);

/// Configures adapters of rank 16 and alpha 32 for the method lora, dora or qlora, on the family's
/// listed parts or the whole model. The base is bf16, or `base_of_qlora` for qlora. Changes nothing
/// for `full` or an empty method. Throws UsageError for an unknown method.
void set_method(HybridTrainerConfig& config, const std::string& method,
                const std::string& base_of_qlora = "nf4");

/// Throws UsageError if the settings imply another method, or another format of a quantized base.
void check_method(const std::string& method, const HybridTrainerConfig& config,
                  const ModelFolder& folder);

std::string method_of_run(const HybridTrainerConfig& run);

/// Throws UsageError if the resumed run was started with another method. If the settings include
/// lora.base (`sets_base`), a run of the method lora may have a quantized base.
void check_method_of_run(const std::string& method, const HybridTrainerConfig& run, bool sets_base);

}  // namespace hybrid_trainer
