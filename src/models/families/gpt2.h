#pragma once

#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// GPT-2. Sources: Radford et al. 2019; transformers' GPT2LMHeadModel.
ModelFamily gpt2_family();

}  // namespace hybrid_trainer
