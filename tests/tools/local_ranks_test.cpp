#include "src/tools/train/local_ranks.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "src/core/clock.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// Ranks that run a shell script; each writes to `folder`/RANK.
class LocalRanksTest : public ::testing::Test {
 protected:
  int run(int ranks, const std::string& script) {
    return run_local_ranks({"/bin/sh", "-c", "cd '" + folder_.path().string() + "'; " + script},
                           ranks);
  }
  std::string written(int rank) const {
    std::ifstream in(folder_ / std::to_string(rank));
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  TemporaryFolder folder_;
};

TEST_F(LocalRanksTest, SetsRankAndAddressVariables) {
  EXPECT_EQ(run(3,
                "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
                "$MASTER_PORT $HYBRID_RANKS $HYBRID_SECRET >$RANK"),
            0);
  std::string same;
  for (int rank = 0; rank < 3; ++rank) {
    std::istringstream words(written(rank));
    std::string number, size, local, local_size, rest;
    words >> number >> size >> local >> local_size;
    EXPECT_EQ(number, std::to_string(rank));
    EXPECT_EQ(local, number);
    EXPECT_EQ(size, "3");
    EXPECT_EQ(local_size, "3");
    std::getline(words, rest);
    EXPECT_TRUE(rest.starts_with(" 127.0.0.1 ")) << rest;
    EXPECT_EQ(rest.size() - rest.rfind(' '), 65u) << "HYBRID_SECRET must have 64 digits";
    if (rank == 0) same = rest;
    EXPECT_EQ(rest, same);
  }
}

TEST_F(LocalRanksTest, FailedRankEndsOthersWithItsCode) {
  const auto begin = Clock::now();
  EXPECT_EQ(run(2,
                "if [ $RANK = 1 ]; then exit 66; fi; trap 'echo asked >0; exit 130' TERM; "
                "sleep 30 >/dev/null 2>&1 & wait"),
            66);
  EXPECT_EQ(written(0), "asked\n");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(LocalRanksTest, KillsUnresponsiveRankWhenRankIsLost) {
  EXPECT_EQ(run(2,
                "if [ $RANK = 1 ]; then kill -9 $$; fi; trap '' TERM; "
                "sleep 30 >/dev/null 2>&1 & wait; wait"),
            68);
}

/// Each rank saves its own part, so each must be signaled only once.
TEST_F(LocalRanksTest, ForwardsSignalOnceToAllRanks) {
  EXPECT_EQ(run(2,
                "trap 'echo asked >>$RANK' TERM; echo >ready$RANK; "
                "while [ $RANK = 1 ] && [ ! -e ready0 ]; do sleep 0.05; done; "
                "if [ $RANK = 1 ]; then kill -TERM $PPID; fi; "
                "while [ ! -e $RANK ]; do sleep 0.05; done; sleep 0.$RANK; sleep 0.3; exit 130"),
            130);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(written(rank), "asked\n");
}

TEST_F(LocalRanksTest, SecondSignalKillsRemainingRanks) {
  const auto begin = Clock::now();
  EXPECT_EQ(run(2,
                "trap '' TERM; echo >ready$RANK; while [ ! -e ready0 ]; do sleep 0.05; done; "
                "if [ $RANK = 1 ]; then kill -TERM $PPID; sleep 1.5; kill -TERM $PPID; fi; "
                "while :; do sleep 1; done"),
            68);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace hybrid_trainer
