// The host cannot access device memory, and kernels stay within their blocks.

#include <gtest/gtest.h>

#include <cstring>

#include "hybrid_trainer/kernels/indexing.h"
#include "kernels/backend/launch.cuh"
#include "src/core/cuda_runtime.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::emulation {
namespace {

Tensor on_device(const Shape& shape, DType dtype, const Stream& stream) {
  return Tensor::zeros(shape, dtype, MemoryKind::kActivations, stream);
}

/// Accesses that end the test's process on purpose. Needs the address sanitizer.
class AccessChecksDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef HT_POISONED_DEVICE
    GTEST_SKIP() << "only the address sanitizer checks accesses: "
                    "scripts/check_sanitizers.sh";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(AccessChecksDeathTest, ReportsHostReadsAndWrites) {
  const auto use = [](const auto& how) {
    const Stream stream = cuda_stream();
    const Tensor x = on_device({8}, DType::kF32, stream);
    stream.synchronize();
    how(x.data<float>());
  };
  volatile float read = 0;
  EXPECT_DEATH(use([&](const float* x) { read = x[3]; }), "use-after-poison");
  EXPECT_DEATH(use([](float* x) { x[3] = 1; }), "use-after-poison");
  EXPECT_DEATH(use([](float* x) { std::memset(x, 0, 4); }), "use-after-poison");
}

TEST_F(AccessChecksDeathTest, ReportsKernelReadOutsideTensor) {
  const auto gather = [](std::int32_t column) {
    const Stream host = kernels::cpu_stream(), stream = cuda_stream();
    const Tensor indices =
        copy_to(kernels::tensor_of({static_cast<double>(column)}, {1}, DType::kI32, host), stream);
    const Tensor x = on_device({1, 3}, DType::kF32, stream);
    const Tensor columns = on_device({1, 1}, DType::kF32, stream);
    kernels::gather_columns(columns, x, indices, stream);
    stream.synchronize();
  };
  gather(2);
  EXPECT_DEATH(gather(3), "gather_columns reads 4 bytes of device memory at .*, outside");
}

TEST(AccessChecks, CopiesRequireDeviceOrPinnedMemory) {
  const Stream stream = cuda_stream();
  const Tensor x = on_device({4}, DType::kF32, stream);
  float pageable[4] = {};
  const auto error_of = [&](const void* from, std::size_t bytes) -> std::string {
    try {
      cuda_runtime().copy(x.raw(), from, bytes, stream.native());
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(pageable, 16).find("is neither the device's nor pinned"), std::string::npos);
  EXPECT_NE(error_of(x.raw(), 32).find("32 bytes"), std::string::npos);
  EXPECT_EQ(error_of(x.raw(), 16), "");
  EXPECT_EQ(error_of(stream.mailbox(), 16), "");
}

void kernel_of_one_pointer(float*) {}

TEST(AccessChecks, KernelsRefuseHostPointers) {
  const Stream stream = cuda_stream();
  const Tensor x = on_device({4}, DType::kF32, stream);
  float pageable[4] = {};
  const auto start = [&](float* data) {
    kernels::cuda::launch(stream, "of_one_pointer", kernel_of_one_pointer, {}, data);
  };
  start(x.data<float>());
  start(nullptr);
  EXPECT_THROW(start(pageable), DeviceError);
}

}  // namespace
}  // namespace hybrid_trainer::emulation
