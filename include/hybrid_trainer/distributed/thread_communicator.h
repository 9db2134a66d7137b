#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// `ranks` ranks in this process, one for each thread that is to be one. Tensors lie in host
/// memory. One that is destroyed has ended: others that wait for it throw RankLost.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks);

/// Runs `rank` in a thread for each rank, and returns when all have ended. Where one throws, the
/// others are aborted, and what it threw is thrown on.
void run_thread_ranks(int ranks, const std::function<void(Communicator&)>& rank);

}  // namespace hybrid_trainer
