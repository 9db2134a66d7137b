#pragma once

#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Folders of the families with state-space layers: keys and their defaults as transformers 5.24
/// has them in Mamba2Config, GraniteMoeHybridConfig, BambaConfig, Qwen3_5TextConfig (by itself and
/// in Qwen3_5Config) and Qwen3NextConfig.
HuggingFaceLayout mamba2_layout();
HuggingFaceLayout granite_hybrid_layout();
HuggingFaceLayout bamba_layout();
HuggingFaceLayout qwen3_5_layout();
HuggingFaceLayout qwen3_next_layout();

}  // namespace hybrid_trainer
