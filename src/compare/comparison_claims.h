#pragma once

#include <string>

#include "hybrid_trainer/compare/comparison_result.h"

namespace hybrid_trainer {

inline constexpr double kConfidence = 0.95;

/// Whether the arm is a program whose command does not take the place, such as "{seed}".
bool lacks(const ComparisonArm& arm, const std::string& place);

/// Claims that arm number `index` differs from the first one, or says why nothing is claimed. All
/// arms have been measured and compared.
void add_claim(std::vector<ArmResult>& arms, std::size_t index, const ComparisonSpec& spec);

}  // namespace hybrid_trainer
