#pragma once

#include <functional>

#include "src/distributed/nccl_communicator.h"

namespace hybrid_trainer {

/// NCCL, or what the emulation has in its place.
WantedLibrary tested_nccl();

/// As many as there are devices, up to four; 0 without NCCL.
int most_nccl_ranks();
inline constexpr const char* kTooFewDevices = "too few devices, or no NCCL";

/// Runs `rank` in a thread for each rank, rank r on cuda:r. Where one throws, the others are
/// aborted, and what it threw is thrown on.
void run_nccl_ranks(int ranks, const std::function<void(Communicator&, Device)>& rank,
                    const NcclLimits& limits = {});

}  // namespace hybrid_trainer
