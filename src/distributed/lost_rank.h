#pragma once

#include "src/core/clock.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Time limits after which a rank counts as lost.
struct LostRankLimits {
  std::chrono::milliseconds heartbeat{1000};  // time between heartbeats
  /// A rank without a heartbeat for this time has stopped.
  std::chrono::milliseconds silence{10000};
  /// A rank without progress for this time is stuck, if other ranks wait for it.
  std::chrono::milliseconds no_progress{30000};
  /// Time between the report and the end of the job on the reporting rank; ten times as long if the
  /// lost rank is silent, so that the launcher can detect it too. Other ranks wait nine times
  /// longer.
  std::chrono::milliseconds farewell{500};
};

struct WatchedRank {
  Clock::time_point last_heartbeat{},
      last_progress{};  // times of the last heartbeat and of the last heartbeat with progress
  RankProgress progress;
  bool has_gone = false;      // whether the rank's connection ended
  bool has_finished = false;  // whether it reported its end before
};

/// A rank without which the other ranks cannot continue.
struct LostRank {
  int rank = 0;
  std::string reason;  // "its connection ended"
  bool is_silent = false;
};

void record_progress(WatchedRank& rank, const RankProgress& progress, Clock::time_point now);

/// Returns the lost rank, if any: its connection ended, it is silent, or it makes no progress
/// outside collectives while other ranks wait in a collective. If all ranks wait longer than the
/// limit, the rank that entered the fewest collectives is lost. Finished ranks are not lost.
std::optional<LostRank> find_lost_rank(const std::vector<WatchedRank>& ranks,
                                       const LostRankLimits& limits, Clock::time_point now);

}  // namespace hybrid_trainer
