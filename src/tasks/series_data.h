#pragma once

#include <memory>

#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// Windows of the table at source.data, whose columns data.columns names. Throws UsageError where no
/// table is given, ConfigError, MissingInput, DataError.
std::unique_ptr<NetworkData> series_data(const NetworkDataSource& source);

}  // namespace hybrid_trainer
