#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/clock.h"

namespace hybrid_trainer {

/// After how long a rank counts as lost.
struct LostRankLimits {
  std::chrono::milliseconds beat{1000};          // between two signs of life
  std::chrono::milliseconds silence{10000};      // stopped
  std::chrono::milliseconds no_progress{30000};  // stuck, while others wait for it
  /// Between telling and ending the job, for the rank that speaks; ten times as long where a link
  /// may be down, which the launcher then has time to see, too. Others wait nine times more.
  std::chrono::milliseconds farewell{500};
};

/// Progress of a rank: what it has done, and how many collectives it has entered and left.
struct RankProgress {
  std::uint64_t work = 0, entered = 0, left = 0;
  bool operator==(const RankProgress&) const = default;
};

/// Knowledge about one rank.
struct WatchedRank {
  Clock::time_point heard{}, moved{};  // its last sign of life, and the last one with progress
  RankProgress progress;
  bool has_gone = false;      // its connection ended
  bool has_finished = false;  // after it said so
};

/// A rank that the others cannot go on with.
struct LostRank {
  int rank = 0;
  std::string reason;  // "its connection ended"
  bool is_silent = false;
};

/// Notes a sign of life.
void hear(WatchedRank& rank, const RankProgress& progress, Clock::time_point now);

/// The rank that is lost, if any is: one whose connection ended; one that is silent; one that is in
/// no collective and does nothing while others wait in one; of ranks that all wait for the limit,
/// the one that has entered the fewest collectives. What has finished is not lost.
std::optional<LostRank> find_lost_rank(const std::vector<WatchedRank>& ranks,
                                       const LostRankLimits& limits, Clock::time_point now);

}  // namespace hybrid_trainer
