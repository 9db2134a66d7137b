#include "src/core/narrow.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hybrid_trainer {
namespace {

TEST(Narrow, KeepsValuesInRangeAndThrowsOutside) {
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{INT32_MIN}), INT32_MIN);
  EXPECT_EQ(narrow<std::uint8_t>(255), 255);
  EXPECT_EQ(narrow<std::int64_t>(-1.9), -1) << "fractions are dropped";
  EXPECT_EQ(narrow<int>(ExitCode::kData), 65);
  EXPECT_THROW(narrow<std::int32_t>(std::int64_t{1} << 31), DataError);
  EXPECT_THROW(narrow<std::int32_t>(~std::uint32_t{0}), DataError) << "it would be -1";
  EXPECT_THROW(narrow<std::uint32_t>(-1), DataError);
  EXPECT_THROW(narrow<std::int64_t>(std::uint64_t{1} << 63), DataError);
  EXPECT_THROW(narrow<std::int64_t>(0x1p63), DataError);
  EXPECT_EQ(narrow<std::int64_t>(-0x1p63), INT64_MIN);
  EXPECT_THROW(narrow<std::int32_t>(1e308), DataError);
  EXPECT_THROW(narrow<std::int32_t>(std::nan("")), DataError);
  try {
    narrow<std::int8_t>(200, "the width of a run");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "the width of a run is 200; want -128 to 127");
  }
}

}  // namespace
}  // namespace hybrid_trainer
