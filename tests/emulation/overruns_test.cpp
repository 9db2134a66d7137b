// Checked after every test: no kernel writes past a tensor, no thread calls CUDA without a device.

#include <gtest/gtest.h>

#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::emulation {
namespace {

class AfterEachTest final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    EXPECT_EQ(device().overruns.exchange(0), 0) << "blocks were written past their end";
    EXPECT_EQ(device().strays.exchange(0), 0) << "calls by threads that had used no device";
    device().restart();
  }
};

class Listening final : public ::testing::Environment {
 public:
  void SetUp() override {
    ::testing::UnitTest::GetInstance()->listeners().Append(new AfterEachTest);
  }
};
const auto* const registered = ::testing::AddGlobalTestEnvironment(new Listening);

TEST(EmulatedDevice, DetectsWritesPastTensor) {
  const Stream stream = cuda_stream();
  for (const std::size_t written : {3u, 4u}) {
    {
      const Tensor x = Tensor::empty({3}, DType::kF32, MemoryKind::kActivations, stream);
      enqueue(stream.native(), [=, data = x.raw()] { fill_bytes(data, 1, 4 * written); });
    }
    EXPECT_EQ(device().overruns.exchange(0), static_cast<int>(written) - 3);
  }
}

}  // namespace
}  // namespace hybrid_trainer::emulation
