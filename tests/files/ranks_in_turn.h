#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/files/checkpoint.h"

namespace hybrid_trainer {

/// Ranks of which one works at a time, until it gathers or ends: then the next one does. So what all
/// do comes in one order. Gives the message of the IoError that each met, "" where none; others are
/// thrown on.
std::vector<std::string> run_ranks_in_turn(int ranks,
                                           const std::function<void(const CheckpointRanks&)>& rank);

}  // namespace hybrid_trainer
