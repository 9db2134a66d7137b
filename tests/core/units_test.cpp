#include "src/core/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hybrid_trainer {
namespace {

TEST(Units, CountsUseShortSuffixes) {
  EXPECT_EQ(units::count(0), "0");
  EXPECT_EQ(units::count(950), "950");
  EXPECT_EQ(units::count(999.7), "1.00k");
  EXPECT_EQ(units::count(12345), "12.3k");
  EXPECT_EQ(units::count(999600), "1.00M");
  EXPECT_EQ(units::count(124.4e6), "124M");
}

TEST(Units, GroupsThousands) {
  EXPECT_EQ(units::grouped(7), "7");
  EXPECT_EQ(units::grouped(1000), "1,000");
  EXPECT_EQ(units::grouped(-1234567), "-1,234,567");
  EXPECT_EQ(units::grouped(-123), "-123");
  EXPECT_EQ(units::grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Units, BytesUsePowersOfThousand) {
  EXPECT_EQ(units::bytes(0), "0 B");
  EXPECT_EQ(units::bytes(999), "999 B");
  EXPECT_EQ(units::bytes(1000), "1.00 kB");
  EXPECT_EQ(units::bytes(412'345'678), "412 MB");
  EXPECT_EQ(units::bytes(999'600'000), "1.00 GB");
  EXPECT_EQ(units::bytes(std::size_t{5} * 1000 * 1000 * 1000 * 1000 * 1000), "5000 TB");
}

TEST(Units, DurationsHaveTwoParts) {
  EXPECT_EQ(units::duration(2.34), "2.3s");
  EXPECT_EQ(units::duration(9.96), "10s");
  EXPECT_EQ(units::duration(59.6), "1m 00s");
  EXPECT_EQ(units::duration(3725), "1h 02m");
  EXPECT_EQ(units::duration(90000), "1d 01h");
  EXPECT_EQ(units::duration(INFINITY), "?");
}

}  // namespace
}  // namespace hybrid_trainer
