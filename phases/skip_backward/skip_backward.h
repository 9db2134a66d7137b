#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/refusal.h"

namespace hybrid_trainer {

/// .
class SkipBackwardMethod {
 public:
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);
};

}  // namespace hybrid_trainer
