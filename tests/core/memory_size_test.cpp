#include "hybrid_trainer/core/fields.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(MemorySize, ParsesDecimalAndBinaryUnits) {
  const std::pair<const char*, std::uint64_t> sizes[] = {
      {"0", 0},
      {"1000001", 1000001},
      {"16GiB", 17179869184},
      {"16 gib", 17179869184},
      {"500MB", 500000000},
      {"1.5KiB", 1536},
      {"7 B", 7},
      {"2TB", 2000000000000},
      {"4611686018427387904", 4611686018427387904},
  };
  for (const auto& [text, bytes] : sizes) {
    ASSERT_TRUE(MemorySize::parse(text)) << text;
    EXPECT_EQ(MemorySize::parse(text)->bytes, bytes) << text;
  }
}

TEST(MemorySize, RefusesMalformedSizes) {
  for (const char* text : {"", "GiB", "-1", "16XB", "16 Gi B", "1e3", "nan", "inf", "16GiB ", " 16",
                           "9223372036854775808", "99999999999TiB", "1..5MB", "0x10"}) {
    EXPECT_FALSE(MemorySize::parse(text)) << text;
  }
}

TEST(MemorySize, TextRoundTrips) {
  EXPECT_EQ(MemorySize{17179869184}.text(), "16GiB");
  EXPECT_EQ(MemorySize{500000000}.text(), "500MB");
  EXPECT_EQ(MemorySize{1000001}.text(), "1000001");
  EXPECT_EQ(MemorySize{}.text(), "0");
  for (std::uint64_t bytes : {1ull, 1023ull, 1024ull, 3000ull, 1ull << 40, (1ull << 40) + 1})
    EXPECT_EQ(MemorySize::parse(MemorySize{bytes}.text()), MemorySize{bytes});
}

}  // namespace
}  // namespace hybrid_trainer
