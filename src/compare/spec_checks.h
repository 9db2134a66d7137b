#pragma once

#include "hybrid_trainer/compare/comparison_spec.h"
#include "src/compare/spec_problems.h"

namespace hybrid_trainer {

/// Notes what does not fit together in the arms of a spec that was read, and in each run's
/// configuration.
void check_arms(const ComparisonSpec& spec, SpecProblems& problems);

}  // namespace hybrid_trainer
