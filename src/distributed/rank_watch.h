#pragma once

#include <memory>

#include "src/distributed/communicator.h"
#include "src/distributed/lost_rank.h"

namespace hybrid_trainer {

/// How ranks are watched, and the action when one is lost.
struct RankWatchSettings {
  LostRankLimits limits;
  /// By which ranks know each other, and nobody else does (JobSecret). It is never sent.
  std::string secret;
  /// Progress of this rank; asked in the watch's thread.
  std::function<RankProgress()> progress;
  /// On every rank that is left, in the watch's thread: `line` says which one is lost and why. One
  /// of them `speaks` for all: the first that is left.
  std::function<void(const std::string& line, bool speaks)> tell;
  /// Ends the job, after that; by the rank that speaks, and later by the others, if they still are.
  std::function<void()> end;
};

/// Watches the ranks of a job beside what they send each other: each has a thread with one TCP
/// connection to rank 0, over which signs of life go both ways; rank 0 decides who is lost
/// (find_lost_rank), and the others whether rank 0 is. Where this process's parent ends, which is
/// the launcher, that is told instead. It takes no lock of the trainer's, so that it
/// sees a rank that is stuck anywhere. Rank 0 listens until all have come, at this machine alone
/// where all are on it; each side proves that it knows the job's secret, and others are turned away.
class RankWatch {
 public:
  /// A collective. Throws DeviceError where rank 0 cannot be reached.
  RankWatch(Communicator& ranks, RankWatchSettings settings);
  /// Says that this rank ends in order.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  class Channel;
  std::unique_ptr<Channel> channel_;
};

}  // namespace hybrid_trainer
