#pragma once

#include "hybrid_trainer/distributed/launched_rank.h"

namespace hybrid_trainer {

/// As one of the ranks that a launcher started: measures the link between all, which rank 0 prints.
/// Returns the exit code. Throws as start_launched_rank.
int diagnose_ranks(const LaunchedRank& launched, bool json);

}  // namespace hybrid_trainer
