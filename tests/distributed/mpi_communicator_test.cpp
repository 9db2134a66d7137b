#include "src/distributed/host_ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

/// Enabled only if HT_GIVE_UP is set, as tests/CMakeLists.txt does for mpirun.
std::vector<testing::RankCase> give_up_cases() {
  if (std::getenv("HT_GIVE_UP") == nullptr) return {};
  return testing::rank_cases();
}

class AbortedMpiRank : public ::testing::TestWithParam<testing::RankCase> {};

TEST_P(AbortedMpiRank, EndsAllRanksAndIsNamed) {
  GetParam().run([](Communicator& ranks, const Stream&) {
    if (ranks.rank() == 1) ranks.abort("the disk is full");
    ranks.barrier();
    FAIL() << "the barrier should have waited for rank 1";
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AbortedMpiRank);
INSTANTIATE_TEST_SUITE_P(All, AbortedMpiRank, ::testing::ValuesIn(give_up_cases()));

#ifndef HT_WITH_MPI
TEST(MpiRanks, MissingPlugInSuggestsInstallation) {
  try {
    start_mpi_communicator();
    FAIL() << "this build should not have the plug-in";
  } catch (const DeviceError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("libhybrid_trainer_mpi.so"), message.npos) << message;
    EXPECT_NE(message.find("libopenmpi-dev"), message.npos) << message;
  }
}
#endif

}  // namespace
}  // namespace hybrid_trainer
