#include "memory/stored_tape.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/kernels/elementwise.h"
#include "tests/support/gradient_check.h"
#include "tests/support/layers.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kTime = 8, kWidth = 16;

struct Result {
  std::vector<Tensor> gradients;
  std::size_t device_bytes = 0, home_bytes = 0;  // between forward and backward
};

class StoredTapeTest : public ::testing::TestWithParam<const char*> {
 protected:
  Result run(const std::string& where, std::int64_t bits = 32, DType dtype = DType::kF32) {
    const Pass pass{.dtype = dtype};
    MemoryPlaces places({}, stream_, MemoryPool::create("host"));
    const Stream& home = places.at(where);
    ResidualBlock block("h.0", {.width = kWidth}, plain_layer(kWidth, 2, 64), 1, stream_);
    const auto visit_all = [&](const ParameterVisitor& visit) { block.visit_parameters(visit); };
    randomize(visit_all, stream_);
    visit_all([&](Parameter& parameter) { parameter.compute_in(dtype, stream_); });
    StepGradients step(visit_all, stream_);
    Result result;
    step.begin(2);
    for (std::uint64_t part = 0; part < 2; ++part) {  // the second one reuses the file
      const auto tape = make_tape(pass, {home, bits, where == "file"}, stream_);
      const std::size_t before = stream_.pool()->use().live_total;
      Tensor x = as(dtype, normal_tensor({2, kTime, kWidth}, 5 + part, stream_));
      const Tensor dy = as(dtype, normal_tensor(x.shape(), 9 + part, stream_));
      block.forward(x, *tape, stream_);
      x = {};
      result.device_bytes = stream_.pool()->use().live_total - before - dy.bytes();
      result.home_bytes = home.pool() == stream_.pool() ? 0 : home.pool()->use().live_total;
      result.gradients.push_back(block.backward(dy, *tape, stream_));
      EXPECT_TRUE(tape->empty());
    }
    visit_all([&](Parameter& p) { result.gradients.push_back(clone(p.gradient(), stream_)); });
    return result;
  }
  Tensor as(DType dtype, const Tensor& x) const {
    if (dtype == DType::kF32) return x;
    const Tensor rounded = Tensor::empty(x.shape(), dtype, x.kind(), stream_);
    kernels::cast(rounded, x, stream_);
    return rounded;
  }
  /// Largest difference of the parameters' gradients, relative to the largest gradient.
  static double difference(const Result& a, const Result& b) {
    double most = 0;
    for (std::size_t i = 2; i < a.gradients.size(); ++i) {
      const auto x = values_of(a.gradients[i]), y = values_of(b.gradients[i]);
      double error = 0, size = 0;
      for (std::size_t k = 0; k < x.size(); ++k) {
        error = std::max(error, std::abs(x[k] - y[k]));
        size = std::max(size, std::abs(x[k]));
      }
      most = std::max(most, error / size);
    }
    return most;
  }
  const Stream stream_ = test_stream();
};

TEST_P(StoredTapeTest, KeepsBitsAndFreesDeviceMemory) {
  const Result device = run("device"), away = run(GetParam());
  for (std::size_t i = 0; i < device.gradients.size(); ++i)
    EXPECT_TRUE(same_bits(away.gradients[i], device.gradients[i])) << i;
  EXPECT_GT(device.device_bytes, 10000u);
  // The last activation may still be in flight.
  EXPECT_LE(away.device_bytes, GetParam() == std::string("file") ? device.device_bytes / 4 : 0u);
  EXPECT_EQ(device.home_bytes, 0u);
  EXPECT_GE(away.home_bytes, device.device_bytes);
}

TEST_P(StoredTapeTest, RoundsToRequestedBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Result exact = run(GetParam(), 32, dtype), half = run(GetParam(), 16, dtype),
                 byte = run(GetParam(), 8, dtype);
    EXPECT_EQ(difference(exact, half) > 0, dtype == DType::kF32);
    EXPECT_LT(difference(exact, half), 0.01);
    EXPECT_GT(difference(exact, byte), 0);
    EXPECT_LT(difference(exact, byte), 0.05);
    if (dtype == DType::kF32) {
      EXPECT_LT(half.home_bytes, 0.8 * exact.home_bytes);
      EXPECT_LT(byte.home_bytes, 0.8 * half.home_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Away, StoredTapeTest, ::testing::Values("host", "file"));

}  // namespace
}  // namespace hybrid_trainer::testing
