#pragma once

#include <memory>
#include <optional>

#include "hybrid_trainer/distributed/decorated_communicator.h"
#include "hybrid_trainer/distributed/distributed_config.h"
#include "hybrid_trainer/distributed/imitated_link.h"

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

}  // namespace hybrid_trainer
