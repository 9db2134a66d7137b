#pragma once

#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Names that keys of a run had before, all of which are still accepted.
const std::vector<Spelling>& config_spellings();

}  // namespace hybrid_trainer
