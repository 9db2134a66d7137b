#pragma once

#include <chrono>
#include <memory>

#include "hybrid_trainer/core/cuda_libraries.h"
#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// Time limits of NCCL.
struct NcclLimits {
  std::chrono::milliseconds start{120000};  // until all ranks have met
  std::chrono::milliseconds end{5000};      // until it has ended or aborted
  std::chrono::milliseconds look{100};      // between two looks for an error
};

/// Ranks on CUDA devices, one on each, by NCCL. `hosts` are the same ranks, which send what lies in
/// host memory, host_gather and barrier; NCCL sends between devices. Calls with a stream of the
/// device return when NCCL has taken them and are done in the stream's order; they block only while
/// two ranks connect for the first time. Reductions are in NCCL's order. Calls that differ between
/// ranks are not told: the streams wait, and RankWatch ends the job. call_progress() counts a
/// collective as entered and left when its stream comes to it.
///
/// A collective of `hosts`. Throws DeviceError on all ranks where one has no NCCL, or one of
/// another version, or where two have the same device.
std::unique_ptr<Communicator> start_nccl_communicator(std::unique_ptr<Communicator> hosts,
                                                      Device device,
                                                      const WantedLibrary& library = nccl_library(),
                                                      const NcclLimits& limits = {});

}  // namespace hybrid_trainer
