#include "hybrid_trainer/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

float rounded(float value) { return to_float(to_bfloat16(value)); }

TEST(BFloat16, RoundsToNearest) {
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-9f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1.8p-8f), 1.0f + 0x1p-7f);
  EXPECT_EQ(rounded(-3.0f), -3.0f);
}

TEST(BFloat16, RoundsTiesToEven) {
  EXPECT_EQ(rounded(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1.8p-7f), 1.0f + 0x1p-6f);
}

TEST(BFloat16, RoundingErrorIsWithinHalfUlp) {
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float value = 100 * random_normal({1, 0, 0}, i);
    EXPECT_LE(std::abs(rounded(value) - value), 0x1p-8f * std::abs(value)) << value;
  }
}

TEST(BFloat16, KeepsNonFiniteValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rounded(infinity), infinity);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(
      rounded(std::bit_cast<float>(0x7F800001u))));  // the payload is entirely in the dropped half
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
}

TEST(DType, HasSizesAndNames) {
  EXPECT_EQ(size_of(DType::kF32), 4u);
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kU8), 1u);
  EXPECT_STREQ(name_of(DType::kBF16), "bf16");
  EXPECT_STREQ(name_of(DType::kI32), "i32");
}

}  // namespace
}  // namespace hybrid_trainer
