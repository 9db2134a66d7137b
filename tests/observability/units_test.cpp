#include "src/observability/units.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hybrid_trainer {
namespace {

TEST(Units, CountsAreShort) {
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(950), "950");
  EXPECT_EQ(short_count(999.7), "1.00k");
  EXPECT_EQ(short_count(12345), "12.3k");
  EXPECT_EQ(short_count(999600), "1.00M");
  EXPECT_EQ(short_count(124.4e6), "124M");
}

TEST(Units, GroupsThreeDigits) {
  EXPECT_EQ(grouped(7), "7");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(std::nan("")), "nan");
}

TEST(Units, BytesArePowersOfAThousand) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(412'345'678), "412 MB");
}

TEST(Units, DurationsHaveTwoParts) {
  EXPECT_EQ(duration_text(2.34), "2.3s");
  EXPECT_EQ(duration_text(9.96), "10s");
  EXPECT_EQ(duration_text(59.6), "1m 00s");
  EXPECT_EQ(duration_text(3725), "1h 02m");
  EXPECT_EQ(duration_text(90000), "1d 01h");
  EXPECT_EQ(duration_text(INFINITY), "?");
}

}  // namespace
}  // namespace hybrid_trainer
