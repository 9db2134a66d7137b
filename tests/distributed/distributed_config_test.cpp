#include "hybrid_trainer/distributed/distributed_config.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(DistributedConfig, NamesTheBackendThatGoesWithTheDevice) {
  const Device cuda{DeviceType::kCuda, 1};
  EXPECT_EQ(backend_of({}, {}), "mpi");
  EXPECT_EQ(backend_of({}, cuda), "nccl");
  EXPECT_EQ(backend_of({.backend = "mpi"}, {}), "mpi");
  EXPECT_EQ(backend_of({.backend = "nccl"}, cuda), "nccl");
  EXPECT_THROW(backend_of({.backend = "nccl"}, {}), ConfigError);
  try {
    backend_of({.backend = "mpi"}, cuda);
    FAIL() << "MPI does not send between CUDA devices";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "distributed.backend: got mpi, and ranks on cuda:1 send by nccl; want auto or "
                 "nccl, or device cpu");
  }
}

}  // namespace
}  // namespace hybrid_trainer
