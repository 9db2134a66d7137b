#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "src/core/cuda_runtime.h"
#include "tests/cuda/apart_memory.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/cuda/orders.h"

namespace hybrid_trainer {
namespace {

/// Fails the test whose device work failed; CUDA would report the error only to later calls. The
/// test's memory has been freed by then, which waits for the device.
class AfterEachTest final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    if (find_cuda().runtime == nullptr) return;
    EXPECT_EQ(cuda_runtime().failure(), "") << "work of this test or an earlier one has failed";
  }
};

/// Checks for failed work after each test. Skips every test, visibly, if there is no device.
class NeedsCuda : public ::testing::Environment {
 public:
  void SetUp() override {
    ::testing::UnitTest::GetInstance()->listeners().Append(new AfterEachTest);
    if (find_cuda().runtime != nullptr) return;
    std::puts("[  SKIPPED ] all: there is no CUDA device");
    GTEST_SKIP() << find_cuda().problem;
  }
};

const auto* const registered = ::testing::AddGlobalTestEnvironment(new NeedsCuda);

}  // namespace

void in_several_orders(const std::function<void()>& run) {
  for (int i = 0; i < 3; ++i) run();
}

std::unique_ptr<MemorySource> test_memory() {
  const char* const wish = std::getenv("HT_TEST_MEMORY");
  const Device device = find_device("cuda");
  if (wish == nullptr || std::string_view(wish) != "apart") return cuda_memory(device);
  return std::make_unique<ApartMemory>(device);
}

StepSizes step_sizes() { return {64, 1024, 12, 64, 50257, 50304, 8192}; }

double loss_tolerance() { return 1e-4; }

double gelu_tolerance() { return 1e-4; }

int recordings_replayed() { return -1; }

WantedLibrary tested_nccl() { return nccl_library(); }

}  // namespace hybrid_trainer
