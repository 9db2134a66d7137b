#pragma once

#include <functional>

#include "src/distributed/nccl_communicator.h"

namespace hybrid_trainer {

/// NCCL, or its replacement for emulated devices.
WantedLibrary tested_nccl();

/// Number of devices, at most four; 0 without NCCL.
int most_nccl_ranks();
inline constexpr const char* kTooFewDevices = "too few devices, or no NCCL";

/// Runs `rank` in one thread per rank r, on cuda:r. If one throws, aborts the others and rethrows.
void run_nccl_ranks(int ranks, const std::function<void(Communicator&, Device)>& rank,
                    const NcclLimits& limits = {});

}  // namespace hybrid_trainer
