#include "memory/quantization.h"

#include <gtest/gtest.h>

#include "src/files/safetensors.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

/// Compares with bitsandbytes (tests/golden/README.md).
TEST(EightBit, MatchesBitsandbytes) {
  const Stream stream = test_stream();
  const SafetensorsFile golden(concat(HT_TEST_DATA_DIR, "/four_bit.safetensors"));
  const auto load = [&](const char* name) {
    return golden.load(concat("int8.", name), MemoryKind::kData, stream);
  };
  const auto ours = quantize_eight_bit(load("values"), stream);
  EXPECT_TRUE(same_bits(ours.codes, load("codes")));
  EXPECT_TRUE(same_bits(ours.magnitudes, load("magnitudes")));
  const Tensor again = Tensor::empty({37, 50}, DType::kF32, MemoryKind::kData, stream);
  kernels::dequantize_eight_bit(again, ours, stream);
  EXPECT_TRUE(same_bits(again, load("again")));
}

TEST(EightBit, ZeroRowStaysZero) {
  const Stream stream = test_stream();
  const Tensor values = normal_tensor({3, 40}, 1, stream);
  fill_zero(values.rows(1, 2), stream);
  const Tensor again = Tensor::empty_like(values, MemoryKind::kData, stream);
  kernels::dequantize_eight_bit(again, quantize_eight_bit(values, stream), stream);
  EXPECT_TRUE(same_bits(again.rows(1, 2), values.rows(1, 2)));
  EXPECT_LT(relative_error(values_of(again), values_of(values)), 0.01);
}

}  // namespace
}  // namespace hybrid_trainer::testing
