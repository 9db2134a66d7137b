// How normalization kernels divide their rows among threads and blocks.

#include <algorithm>
#include <map>

#include "hybrid_trainer/kernels/normalization.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::kernels {
namespace {

class EmulatedNorm : public ::testing::Test {
 protected:
  EmulatedNorm() {
    emulation::device().sees_launch = [this](const std::string& kernel, const cuda::Grid& grid) {
      grids_[kernel] = grid;
    };
  }
  ~EmulatedNorm() override { emulation::device().sees_launch = nullptr; }

  Tensor empty(const Shape& shape, DType dtype) const {
    return Tensor::zeros(shape, dtype, MemoryKind::kActivations, stream_);
  }
  std::int64_t threads_of(const std::string& kernel) const {
    return grids_.at(kernel).x * grids_.at(kernel).threads;
  }

  Stream stream_ = cuda_stream();
  std::map<std::string, cuda::Grid> grids_;
};

TEST_F(EmulatedNorm, UsesOneLanePerPackOfHead) {
  constexpr std::int64_t kTokens = 16, kHeads = 4;
  for (const std::int64_t size : {64, 128, 256}) {
    const Tensor x = empty({2, kTokens / 2, kHeads * size}, DType::kBF16);
    const Tensor dx = empty({2, kTokens / 2, kHeads * size}, DType::kBF16);
    const Tensor weight = empty({size}, DType::kF32), dweight = empty({size}, DType::kF32);
    rms_norm_heads_forward(x, {0, kHeads}, weight, {1e-5f}, stream_);
    rms_norm_heads_backward(dx, dweight, GradientMode::kOverwrite, x, {0, kHeads}, weight, {1e-5f},
                            stream_);
    stream_.synchronize();
    const std::int64_t packs = kTokens * kHeads * size / 8;
    EXPECT_EQ(threads_of("rms_norm_forward"), packs) << size;
    EXPECT_EQ(threads_of("rms_norm_backward"), packs) << size;
  }
}

TEST_F(EmulatedNorm, BackwardBlocksFitOnDeviceAtOnce) {
  // At 80 registers per thread, a multiprocessor has room for 768 threads; an A100 has 108.
  constexpr std::int64_t kRoom = 108 * 768;
  for (const auto& [rows, columns] : {std::pair{1100, 768}, {700, 1600}, {300, 4096}}) {
    const Tensor x = empty({rows, columns}, DType::kBF16),
                 dx = empty({rows, columns}, DType::kBF16);
    const Tensor moments = empty({rows}, DType::kF32);
    const Tensor weight = empty({columns}, DType::kF32);
    const Tensor dweight = empty({columns}, DType::kF32), dbias = empty({columns}, DType::kF32);
    layer_norm_backward(dx, GradientMode::kAccumulate, dweight, dbias, GradientMode::kOverwrite, x,
                        x, moments, moments, weight, stream_);
    rms_norm_backward(dx, GradientMode::kAccumulate, dweight, GradientMode::kOverwrite, x, x,
                      moments, weight, {1e-5f}, stream_);
    stream_.synchronize();
    for (const char* kernel : {"layer_norm_backward", "rms_norm_backward"}) {
      EXPECT_LE(threads_of(kernel), kRoom) << kernel << " " << columns;
      EXPECT_GE(threads_of(kernel), 108 * 384) << kernel << " " << columns;
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
