#pragma once

#include <string>

#include "hybrid_trainer/watch/watched_folder.h"

namespace hybrid_trainer {

/// HTML of what a run does at this moment: progress, time left, phase machine, memory against budget,
/// last decision, warnings.
std::string live_now(const WatchedRun& run);

/// HTML rows of a table of runs: sparkline, phase, step, loss, with links to their pages.
std::string live_rows(const WatchedFolder& folder);

/// The page of a folder of runs, which refers to nothing but the runs' pages.
std::string runs_page(const WatchedFolder& folder);
/// Its Content-Security-Policy.
std::string runs_policy();

}  // namespace hybrid_trainer
