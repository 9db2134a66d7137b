#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/clock.h"

namespace hybrid_trainer {

/// Time limits after which a rank counts as lost.
struct LostRankLimits {
  std::chrono::milliseconds heartbeat{1000};     // between heartbeats
  std::chrono::milliseconds silence{10000};      // without a heartbeat: stopped
  std::chrono::milliseconds no_progress{30000};  // stuck, while others wait for it
  /// Time between reporting and ending the job, on the rank that reports. If the lost rank was
  /// silent, ten times as long, because a link may be down and the launcher should detect that too.
  /// Other ranks wait nine times this value longer.
  std::chrono::milliseconds farewell{500};
};

/// Progress of a rank: work done, and collectives entered and left.
struct RankProgress {
  std::uint64_t work = 0, entered = 0, left = 0;
  bool operator==(const RankProgress&) const = default;
};

/// State of one rank, from its heartbeats.
struct WatchedRank {
  Clock::time_point last_heartbeat{},
      last_progress{};  // last heartbeat, and last one with progress
  RankProgress progress;
  bool has_gone = false;      // its connection ended
  bool has_finished = false;  // it reported its end before
};

/// A rank without which the others cannot continue.
struct LostRank {
  int rank = 0;
  std::string reason;  // "its connection ended"
  bool is_silent = false;
};

/// Records a heartbeat.
void record_progress(WatchedRank& rank, const RankProgress& progress, Clock::time_point now);

/// Returns the lost rank, if any: one whose connection ended; one that is silent; one that makes no
/// progress outside collectives while others wait in one; or, if all ranks wait beyond the limit,
/// the one that entered the fewest collectives. Finished ranks are not lost.
std::optional<LostRank> find_lost_rank(const std::vector<WatchedRank>& ranks,
                                       const LostRankLimits& limits, Clock::time_point now);

}  // namespace hybrid_trainer
