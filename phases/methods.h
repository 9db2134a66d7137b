#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/refusal.h"

namespace hybrid_trainer {

/// What makes a method. A new one is a folder of its own, its group in PhaseConfig, and a row.
struct MethodRow {
  const char* name;  // of phases.method, and of its group
  const std::vector<Refusal>& (*refusals)();
  std::string (*text)(const PhaseConfig& config);  // see PhaseConfig::predict_text
};

/// All methods, in one table.
const std::vector<MethodRow>& methods();

}  // namespace hybrid_trainer
