#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/distributed/distributed_config.h"
#include "src/distributed/decorated_communicator.h"

namespace hybrid_trainer {

/// What a run puts between itself and the other ranks: what it sends goes beside what it computes,
/// on a processor in a thread and over a link that may be imitated, on CUDA in a stream of its own.
class RankLinks {
 public:
  /// `ranks` must outlive it.
  RankLinks(Communicator& ranks, const DistributedConfig& config, Device device = {});
  Communicator& ranks() { return *beside_; }

 private:
  std::optional<ImitatedLink> link_;
  std::unique_ptr<Communicator> beside_;
};

/// The one of several ranks for which the others wait.
struct SlowRank {
  int rank = 0;
  double ratio = 1;  // of its seconds to the mean of the others'
};

/// How long ranks compute in a step, without what they wait for, as each tells all others.
class RankPace {
 public:
  /// Of one step, by rank, of as many each time; a rank that does not know its own gives 0, and
  /// then nothing is counted.
  void add(const std::vector<double>& seconds);
  /// Over the last ten steps or so, and over all; none where the slowest takes less than a tenth
  /// longer than the others.
  std::optional<SlowRank> lately() const { return slowest_of(recent_); }
  std::optional<SlowRank> overall() const { return slowest_of(all_); }

 private:
  static std::optional<SlowRank> slowest_of(const std::vector<double>& seconds);
  std::vector<double> recent_, all_;  // sums; of the recent ones, older ones fade
};

}  // namespace hybrid_trainer
