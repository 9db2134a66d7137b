#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/distributed/distributed_config.h"
#include "src/distributed/decorated_communicator.h"

namespace hybrid_trainer {

/// Wraps a run's communicator so that transfers overlap with computation: on a CPU they run in a
/// thread and optionally over a simulated link, and on CUDA in a separate stream.
class RankLinks {
 public:
  /// `ranks` must outlive this object.
  RankLinks(Communicator& ranks, const DistributedConfig& config, Device device = {});
  Communicator& ranks() { return *background_; }

 private:
  std::optional<SimulatedLink> link_;
  std::unique_ptr<Communicator> background_;
};

/// The rank for which the others wait.
struct SlowRank {
  int rank = 0;
  double ratio = 1;  // its compute time relative to the mean of the others
};

/// Compute time of each rank per step, without its waits, as reported by all ranks.
class StragglerDetector {
 public:
  /// Adds the seconds of one step, by rank, unless any is 0 (unknown).
  void add(const std::vector<double>& seconds);
  /// Returns the slowest rank over about ten steps, or overall, if it is at least 10 % slower.
  std::optional<SlowRank> recent() const { return slowest_of(recent_); }
  std::optional<SlowRank> overall() const { return slowest_of(all_); }

 private:
  static std::optional<SlowRank> slowest_of(const std::vector<double>& seconds);
  std::vector<double> recent_, all_;  // sums; recent_ decays
};

}  // namespace hybrid_trainer
