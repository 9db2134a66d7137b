#include "src/trainer/planning/step_cost.h"

#include <gtest/gtest.h>

#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

/// Estimates steps of two ranks, for machines and links of any speed.
class RankStepTimeTest : public ::testing::Test {
 protected:
  RankStepTimeTest() : config_(rank_config("adamw", 4)) {
    config_.model.width = 80;
    config_.distributed.bucket_bytes = 1 << 15;
  }
  RankStepTime estimate(double link_bytes_per_second) {
    const StepTransfer transfer = simulate_ranks(config_, {}, 2).transfer;
    return estimate_rank_step(config_, {}, 2, transfer, rates_, link_bytes_per_second);
  }

  HybridTrainerConfig config_;
  StepRates rates_{.flops_per_second = 1e9, .copy_bytes_per_second = 1e10};
};

TEST_F(RankStepTimeTest, ScalesWithComputeAndLinkRates) {
  const RankStepTime once = estimate(1e6);
  rates_.flops_per_second *= 2;
  EXPECT_LT(estimate(1e6).computing, 0.6 * once.computing);
  EXPECT_EQ(estimate(1e6).sending, once.sending);
  EXPECT_DOUBLE_EQ(estimate(2e6).sending, once.sending / 2);
  EXPECT_EQ(once.seconds(), once.computing + once.exposed);
}

/// A fast link hides everything except the groups at the ends of backward and forward. A slow link
/// hides almost nothing.
TEST_F(RankStepTimeTest, HidesCommunicationOnlyOnFastLink) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    config_.distributed.zero = zero;
    const RankStepTime fast = estimate(1e9), slow = estimate(1e3);
    EXPECT_LT(fast.exposed, 0.6 * fast.sending) << zero;
    EXPECT_GT(fast.exposed, 0) << zero;
    EXPECT_GT(slow.exposed, 0.9 * slow.sending) << zero;
    EXPECT_LE(slow.exposed, slow.sending) << zero;
    config_.distributed.overlap = false;
    EXPECT_EQ(estimate(1e9).exposed, estimate(1e9).sending) << zero;
    config_.distributed.overlap = true;
  }
}

/// With sharded weights all passes hide communication; otherwise only one backward pass does.
TEST_F(RankStepTimeTest, ShardedWeightsHideMoreCommunication) {
  config_.distributed.zero = 0;
  const double computing = estimate(1e9).computing;
  const auto link_for = [&](double seconds) {
    return static_cast<double>(simulate_ranks(config_, {}, 2).transfer.link_bytes) / seconds;
  };
  const RankStepTime whole = estimate(link_for(0.9 * computing));
  EXPECT_GT(whole.exposed, 0.5 * whole.sending);
  config_.distributed.zero = 3;
  const RankStepTime apart = estimate(link_for(0.9 * computing));
  EXPECT_LT(apart.exposed, 0.5 * apart.sending);
}

/// A rank computes and updates only its share.
TEST_F(RankStepTimeTest, CountsOnlyOwnShareOfWork) {
  const double two = estimate(1e9).computing;
  config_.gradient_accumulation.micro_batches = 8;
  EXPECT_GT(estimate(1e9).computing, 1.7 * two);
  rates_.flops_per_second = 1e15;  // only the update remains
  const double update = estimate(1e9).computing;
  config_.distributed.zero = 1;
  EXPECT_LT(estimate(1e9).computing, 0.9 * update);
}

}  // namespace
}  // namespace hybrid_trainer
