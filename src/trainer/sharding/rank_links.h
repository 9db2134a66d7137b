#pragma once

#include "hybrid_trainer/distributed/distributed_config.h"
#include "src/distributed/decorated_communicator.h"

namespace hybrid_trainer {

/// Wraps a run's communicator so that transfers overlap with computation. On a CPU, transfers run
/// in a thread and optionally over a simulated link; on CUDA, they run in a separate stream.
class RankLinks {
 public:
  RankLinks(Communicator& ranks, const DistributedConfig& config, Device device = {});
  Communicator& ranks() { return *background_; }

 private:
  std::optional<SimulatedLink> link_;
  std::unique_ptr<Communicator> background_;
};

struct SlowRank {
  int rank = 0;
  double ratio = 1;  // compute time relative to the mean of the other ranks
};

/// Finds the slowest rank from all ranks' compute time per step, without waiting.
class StragglerDetector {
 public:
  /// Adds the seconds of one step, by rank, unless any is 0 (unknown).
  void add(const std::vector<double>& seconds);
  /// Return the slowest rank over about ten steps (recent) or over all steps, if it is at least 10
  /// % slower than the mean of the others.
  std::optional<SlowRank> recent() const { return slowest_of(recent_); }
  std::optional<SlowRank> overall() const { return slowest_of(all_); }

 private:
  static std::optional<SlowRank> slowest_of(const std::vector<double>& seconds);
  std::vector<double> recent_, all_;  // sums; recent_ decays
};

}  // namespace hybrid_trainer
