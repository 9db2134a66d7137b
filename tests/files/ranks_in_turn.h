#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/files/checkpoint.h"

namespace hybrid_trainer {

/// Runs ranks of which only one works at a time, until it gathers or ends, so their calls have a
/// fixed order. Returns the message of each rank's IoError, or "". Rethrows other exceptions.
std::vector<std::string> run_ranks_in_turn(int ranks,
                                           const std::function<void(const CheckpointRanks&)>& rank);

}  // namespace hybrid_trainer
