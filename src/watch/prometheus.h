#pragma once

#include <string>

#include "hybrid_trainer/watch/watched_folder.h"

namespace hybrid_trainer {

/// The numbers of all runs' last steps in the text format of Prometheus, version 0.0.4. Each has a
/// label `run`.
std::string prometheus_text(const WatchedFolder& folder);

}  // namespace hybrid_trainer
