#include "hybrid_trainer/distributed/distributed_config.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(DistributedConfig, AcceptsOnlyBackendsOfDevice) {
  const Device cpu{}, cuda{DeviceType::kCuda, 1};
  for (const char* const name : {"auto", "mpi", "sockets"}) check_backend({.backend = name}, cpu);
  for (const char* const name : {"auto", "nccl"}) check_backend({.backend = name}, cuda);
  EXPECT_THROW(check_backend({.backend = "nccl"}, cpu), ConfigError);
  try {
    check_backend({.backend = "mpi"}, cuda);
    FAIL() << "MPI does not send between CUDA devices";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "distributed.backend: got mpi, but ranks on cuda:1 use nccl; want auto, or device cpu");
  }
}

}  // namespace
}  // namespace hybrid_trainer
