#pragma once

#include "src/distributed/lost_rank.h"

namespace hybrid_trainer {

struct RankWatchSettings {
  LostRankLimits limits;
  /// Shared secret by which ranks authenticate each other (JobSecret). It is never sent.
  std::string secret;
  /// Returns the progress of this rank; called in the watch's thread.
  std::function<RankProgress()> progress;
  /// Called on each remaining rank, in the watch's thread. `reports` is true only on the first of
  /// these ranks.
  std::function<void(const std::string& line, bool reports)> report;
  /// Ends the job after the report: first on the rank that reports, later on ranks that still run.
  std::function<void()> end;
};

/// Monitors the ranks of a job independently of their collectives. Each rank has a thread with one
/// TCP connection to rank 0 for heartbeats in both directions. Rank 0 decides whether another rank
/// is lost (find_lost_rank); the others decide whether rank 0 is lost. Also reports the end of the
/// launcher, the parent of this process. The watch takes no locks of the trainer, so it detects a
/// rank that is stuck anywhere. Rank 0 listens until all ranks have connected, on loopback only if
/// all are on this machine. Both sides of a connection must prove that they know the job's secret.
class RankWatch {
 public:
  /// Collective. Throws DeviceError if rank 0 cannot be reached.
  RankWatch(Communicator& ranks, RankWatchSettings settings);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  class Channel;
  std::unique_ptr<Channel> channel_;
};

}  // namespace hybrid_trainer
