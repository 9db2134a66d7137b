#pragma once

#include <memory>

#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// The data of the config's family. Throws UsageError where none are known, and as NetworkDataKind::open.
std::unique_ptr<NetworkData> opened_data(const NetworkDataSource& source,
                                         const NetworkDataKinds& kinds = network_data_kinds());

}  // namespace hybrid_trainer
