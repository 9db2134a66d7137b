#pragma once

#include <memory>

#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// Pictures with classes, for a ViT. Throws UsageError without a file of rows; MissingInput; DataError
/// where no row can be used, or the model's folder makes pictures of another size than the model sees.
std::unique_ptr<NetworkData> open_pictures(const NetworkDataSource& source);

}  // namespace hybrid_trainer
