#include "src/distributed/lost_rank.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

bool waits(const WatchedRank& rank) { return rank.progress.entered > rank.progress.left; }

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

}  // namespace

void record_progress(WatchedRank& rank, const RankProgress& progress, Clock::time_point now) {
  rank.last_heartbeat = now;
  if (progress != rank.progress || rank.last_progress == Clock::time_point{})
    rank.last_progress = now;
  rank.progress = progress;
}

std::optional<LostRank> find_lost_rank(const std::vector<WatchedRank>& ranks,
                                       const LostRankLimits& limits, Clock::time_point now) {
  const auto find = [&](const auto& is_it) -> std::optional<int> {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (!ranks[i].has_finished && is_it(ranks[i])) return static_cast<int>(i);
    }
    return {};
  };
  if (const auto rank = find([](const WatchedRank& one) { return one.has_gone; }))
    return LostRank{*rank, "its connection ended"};
  if (const auto rank =
          find([&](const WatchedRank& one) { return now - one.last_heartbeat > limits.silence; })) {
    return LostRank{.rank = *rank,
                    .reason = concat("no heartbeat for ", seconds(limits.silence),
                                     " s: the process is stopped, or its host or network is down"),
                    .is_silent = true};
  }
  const auto is_still = [&](const WatchedRank& one) {
    return now - one.last_progress > limits.no_progress;
  };
  if (!find([&](const WatchedRank& one) { return waits(one) && is_still(one); })) return {};
  const std::string reason = concat("no progress for ", seconds(limits.no_progress), " s");
  if (const auto rank = find([&](const WatchedRank& one) { return !waits(one) && is_still(one); }))
    return LostRank{*rank, reason};
  const bool all_wait = std::all_of(ranks.begin(), ranks.end(), [&](const WatchedRank& one) {
    return one.has_finished || (waits(one) && is_still(one));
  });
  if (!all_wait) return {};
  const auto fewest = std::min_element(ranks.begin(), ranks.end(),
                                       [](const WatchedRank& left, const WatchedRank& right) {
                                         return left.progress.entered < right.progress.entered;
                                       });
  return LostRank{static_cast<int>(fewest - ranks.begin()),
                  concat(reason, " in collective ", fewest->progress.entered,
                         ", and all ranks are waiting: their network is down, or they call "
                         "different collectives")};
}

}  // namespace hybrid_trainer
