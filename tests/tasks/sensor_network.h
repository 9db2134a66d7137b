#pragma once

#include "hybrid_trainer/models/model_family.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer::testing {

/// A family whose networks are no language models: two sensors, whose signals are added, a perceptron
/// on top and four classes. Its parts are left, right, fusion and head.
ModelFamily sensor_family();

/// GPT-2 and sensor_family.
const ModelRegistry& sensor_registry();

/// Signals of both sensors, drawn from the seed, of which the signs of the first values name the class;
/// in a fifth of the examples another class is told.
const NetworkDataKinds& sensor_data();

}  // namespace hybrid_trainer::testing
