#include "src/distributed/lost_rank.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

using std::chrono::seconds;

/// Three ranks, all healthy at `now_`.
class LostRanks : public ::testing::Test {
 protected:
  LostRanks() : ranks_(3) {
    for (WatchedRank& rank : ranks_) record_progress(rank, {5, 2, 2}, now_);
  }
  std::optional<LostRank> found() const { return find_lost_rank(ranks_, limits_, now_); }
  void expect(int rank, const std::string& reason) const {
    const auto lost = found();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->rank, rank);
    EXPECT_NE(lost->reason.find(reason), std::string::npos) << lost->reason;
  }
  /// All ranks send a heartbeat with their progress.
  void heartbeat(seconds later, const std::vector<RankProgress>& progress) {
    now_ += later;
    for (std::size_t i = 0; i < ranks_.size(); ++i) record_progress(ranks_[i], progress[i], now_);
  }

  LostRankLimits limits_;
  Clock::time_point now_ = Clock::now();
  std::vector<WatchedRank> ranks_;
};

TEST_F(LostRanks, NoneWhileAllRanksReport) {
  EXPECT_FALSE(found());
  now_ += seconds(9);
  EXPECT_FALSE(found());
}

TEST_F(LostRanks, EndedConnectionIsLost) {
  ranks_[1].has_gone = true;
  expect(1, "its connection ended");
  ranks_[1].has_finished = true;
  EXPECT_FALSE(found());
}

TEST_F(LostRanks, SilentRankIsLost) {
  now_ += seconds(11);
  for (const std::size_t i : {0, 1}) record_progress(ranks_[i], {6, 2, 2}, now_);
  expect(2, "no heartbeat for 10 s");
}

TEST_F(LostRanks, StuckRankIsLostWhileOthersWait) {
  heartbeat(seconds(1), {{5, 3, 2}, {5, 2, 2}, {5, 3, 2}});
  heartbeat(seconds(29), {{5, 3, 2}, {5, 2, 2}, {5, 3, 2}});
  EXPECT_FALSE(found());
  heartbeat(seconds(3), {{5, 3, 2}, {5, 2, 2}, {5, 3, 2}});
  expect(1, "no progress for 30 s");
}

TEST_F(LostRanks, LongComputationIsNotLost) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    heartbeat(seconds(1), {{5, 3, 2}, {6 + i, 2, 2}, {5, 3, 2}});
    EXPECT_FALSE(found()) << i;
  }
}

TEST_F(LostRanks, NoneWhenNoRankWaits) {
  heartbeat(seconds(50), {{5, 2, 2}, {5, 2, 2}, {5, 2, 2}});
  heartbeat(seconds(50), {{5, 2, 2}, {5, 2, 2}, {5, 2, 2}});
  EXPECT_FALSE(found());
}

TEST_F(LostRanks, RankBehindIsLostWhenAllWait) {
  heartbeat(seconds(1), {{5, 4, 3}, {5, 4, 3}, {5, 3, 2}});
  heartbeat(seconds(31), {{5, 4, 3}, {5, 4, 3}, {5, 3, 2}});
  expect(2, "in collective 3, and all ranks are waiting");
}

}  // namespace
}  // namespace hybrid_trainer
