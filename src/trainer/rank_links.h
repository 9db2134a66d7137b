#pragma once

#include <optional>

#include "hybrid_trainer/distributed/background_communicator.h"
#include "hybrid_trainer/distributed/distributed_config.h"
#include "hybrid_trainer/distributed/imitated_link.h"

namespace hybrid_trainer {

/// What a run puts between itself and the other ranks: what it sends goes beside what it computes,
/// over a link that may be imitated. On CUDA nothing is beside: what begins is enqueued on the
/// stream of its caller.
class RankLinks {
 public:
  /// `ranks` must outlive it.
  RankLinks(Communicator& ranks, const DistributedConfig& config, Device device = {});
  Communicator& ranks() { return beside_; }

 private:
  std::optional<ImitatedLink> link_;
  BackgroundCommunicator beside_;
};

}  // namespace hybrid_trainer
