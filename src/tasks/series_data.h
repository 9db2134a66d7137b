#pragma once

#include <filesystem>
#include <memory>

#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// Windows of the table at `data`, whose columns data.columns names. Throws UsageError where no table is
/// given, ConfigError, MissingInput, DataError.
std::unique_ptr<NetworkData> series_data(const HybridTrainerConfig& config,
                                         const std::filesystem::path& data);

}  // namespace hybrid_trainer
