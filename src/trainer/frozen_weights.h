#pragma once

#include <string>

#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Freezes the model's parameter, its `values` (f32 on the host, or simulated) held at `home` in the
/// form that lora.base names; a quantised matrix module by module, as the layout's files have them.
void hold_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                 const LanguageModel& model, const HuggingFaceLayout& layout, const Stream& home);

/// The same for all weights of a model, which are in f32.
void hold_all_frozen(LanguageModel& model, const std::string& form, const Stream& stream,
                     const ModelRegistry& registry);

}  // namespace hybrid_trainer
