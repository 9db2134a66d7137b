#pragma once

#include <filesystem>
#include <string>

#include "hybrid_trainer/hugging_face/folder_weight.h"
#include "hybrid_trainer/nn/network.h"

namespace hybrid_trainer {

/// Freezes the model's parameter, its `values` (f32 on the host, or simulated) held at `home` in the
/// form that lora.base names; a quantised matrix module by module (see Parameter::in_files).
void hold_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                 const Stream& home);

/// The same for all weights of a model, which are in f32.
void hold_all_frozen(Network& model, const std::string& form, const Stream& stream);

/// The same of a weight in a folder, whose codes are taken as they are where they are of that form:
/// beside them a matrix that the folder does not quantise stays in bf16.
void hold_frozen(Parameter& parameter, const FolderWeight& weight, const std::string& form,
                 const std::string& form_of_folder, const Stream& home);

/// In which form a folder's weights are held where `asked` is asked for: those that are quantised
/// stay as they are where only a precision is asked for. Throws MissingInput, DataError.
std::string form_held(const std::filesystem::path& folder, const std::string& asked);

}  // namespace hybrid_trainer
