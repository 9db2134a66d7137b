#pragma once

#include <filesystem>
#include <memory>

#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// The data of the config's family. Throws UsageError where none are known, and as NetworkDataKind::open.
std::unique_ptr<NetworkData> opened_data(const HybridTrainerConfig& config,
                                         const std::filesystem::path& data,
                                         const NetworkDataKinds& kinds);

}  // namespace hybrid_trainer
