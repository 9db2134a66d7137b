#pragma once

#include "hybrid_trainer/models/model_family.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer::testing {

/// A family of networks other than language models: two sensors, whose signals are added, a
/// perceptron and four classes. Its parts are left, right, fusion and head.
ModelFamily sensor_family();

/// GPT-2 and sensor_family.
const ModelRegistry& sensor_registry();

/// Random signals of both sensors, whose first signs give the class; a fifth of labels are wrong.
const NetworkDataKinds& sensor_data();

}  // namespace hybrid_trainer::testing
