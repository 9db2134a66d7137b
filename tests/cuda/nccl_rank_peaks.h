#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/nccl_ranks.h"
#include "tests/trainer/planning/rank_peaks.h"

namespace hybrid_trainer {

/// Peaks of rank 0 of two; expects the same with overlapped and with the planner's blocking calls.
inline PhasePeaks peaks_beside_as_at_once(const HybridTrainerConfig& config) {
  std::vector<PhasePeaks> overlapped(2), at_once(2);
  run_nccl_ranks(2, [&](Communicator& others, Device device) {
    const auto rank = static_cast<std::size_t>(others.rank());
    at_once[rank] = rank_peaks(config, others, device);
    RankLinks links(others, config.distributed, device);
    overlapped[rank] = rank_peaks(config, links.ranks(), device);
  });
  EXPECT_EQ(overlapped, at_once);
  return overlapped[0];
}

}  // namespace hybrid_trainer
