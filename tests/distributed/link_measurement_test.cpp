#include "src/distributed/decorated_communicator.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/distributed/host_ranks.h"
#include "src/distributed/single_communicator.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

/// A link can be slower than the simulated one, never faster.
TEST(LinkMeasurement, DoesNotExceedSimulatedLink) {
  run_thread_ranks(2, [](Communicator& others) {
    SimulatedLink ranks(others,
                        {.bytes_per_second = 1e9, .latency = std::chrono::microseconds(300)});
    const LinkSpeed found = measure_link(ranks, testing::rank_stream());
    EXPECT_LE(found.bytes_per_second, 1e9);
    EXPECT_GT(found.bytes_per_second, 0);
    EXPECT_GE(found.latency.count(), 300e-6);
  });
}

TEST(LinkMeasurement, RequiresTwoRanks) {
  SingleCommunicator alone;
  EXPECT_THROW(measure_link(alone, testing::rank_stream()), Error);
}

}  // namespace
}  // namespace hybrid_trainer
