#include "memory/quantization.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

Tensor row_of(const std::vector<float>& first, const Stream& stream) {
  const Tensor row = Tensor::zeros({1, 32}, DType::kF32, MemoryKind::kData, stream);
  std::copy(first.begin(), first.end(), row.data<float>());
  return row;
}

std::vector<double> again(const Tensor& values, const Stream& stream) {
  const Tensor made = Tensor::empty_like(values, MemoryKind::kData, stream);
  kernels::dequantize_micro_scaling(made, quantize_micro_scaling(values, stream), stream);
  return values_of(made);
}

TEST(MicroScalingQuantization, RoundsToNearestEvenCode) {
  const Stream stream = test_stream();
  const std::vector<double> made = again(
      row_of({6, 0.2f, 0.25f, 0.75f, -1.25f, 1.75f, 2.5f, 3.5f, -5, 0.3f, 2.4f}, stream), stream);
  const std::vector<double> wanted{6, 0, 0, 1, -1, 2, 2, 4, -4, 0.5, 2};
  EXPECT_EQ(std::vector<double>(made.begin(), made.begin() + 11), wanted);
}

TEST(MicroScalingQuantization, LargestValueSetsExponentAndSaturates) {
  const Stream stream = test_stream();
  const std::vector<double> made = again(row_of({7.9f * 1024, -1024, 700}, stream), stream);
  EXPECT_EQ(made[0], 6 * 1024);
  EXPECT_EQ(made[1], -1024);
  EXPECT_EQ(made[2], 0.5 * 1024);
}

TEST(MicroScalingQuantization, RepresentableValuesStayUnchanged) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({5, 96}, 1, stream);
  const std::vector<double> once = again(values, stream);
  EXPECT_LT(relative_error(once, values_of(values)), 0.2);
  const Tensor rounded = Tensor::empty_like(values, MemoryKind::kData, stream);
  std::copy(once.begin(), once.end(), rounded.data<float>());
  EXPECT_EQ(again(rounded, stream), once);
}

TEST(MicroScalingQuantization, NaNTurnsBlockNaNAndZerosStayZeros) {
  const Stream stream = test_stream();
  for (const double value : again(row_of({1, NAN}, stream), stream)) EXPECT_TRUE(std::isnan(value));
  for (const double value : again(row_of({}, stream), stream)) EXPECT_EQ(value, 0);
}

TEST(MicroScalingQuantization, RefusesRowsWithPartialBlocks) {
  const Stream stream = test_stream();
  EXPECT_THROW(quantize_micro_scaling(normal_tensor({2, 40}, 1, stream), stream), DataError);
}

}  // namespace
}  // namespace hybrid_trainer::testing
