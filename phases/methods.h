#pragma once

#include <vector>

#include "phases/method.h"

namespace hybrid_trainer {

/// All methods, in one table.
const std::vector<MethodRow>& methods();

}  // namespace hybrid_trainer
