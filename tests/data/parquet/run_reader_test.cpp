#include "src/data/parquet/encodings.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_literals;

TEST(RunReader, ReadsRepeatedAndPackedRuns) {
  const std::string bytes = "\x06\x05\x03\x88\xC6\xFA"s;  // 5 three times; 0 … 7 in 3 bits each
  RunReader runs(bytes, 3);
  for (const std::uint32_t want : {5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7}) EXPECT_EQ(runs.next(), want);
  EXPECT_THROW(runs.next(), DataError);
  EXPECT_THROW(RunReader(bytes, 33), DataError);
}

TEST(RunReader, ZeroBitWidthGivesZeros) {
  RunReader runs("", 0);
  EXPECT_EQ(runs.next(), 0u);
}

TEST(Unpacked, ReadsBitsAcrossEightBytes) {
  const std::string ones(17, '\xFF');
  EXPECT_EQ(unpacked(ones, 1, 63), (std::uint64_t{1} << 63) - 1);
  EXPECT_EQ(unpacked(ones, 1, 64), ~std::uint64_t{0});
  EXPECT_EQ(unpacked(std::string("\x00\x00\x00\x00\x00\x00\x00\x80\x01"s), 1, 63), 3u);
}

TEST(DeltaReader, ReadsDifferences) {
  // Blocks of one mini-block of 8; 9 numbers from 7 on, differences of at least −2 in 2 bits each.
  const std::string bytes = "\x08\x01\x09\x0E\x03\x02\xE4\xE4 rest"s;
  DeltaReader deltas(bytes, 9);
  for (const std::int64_t want : {7, 5, 4, 4, 5, 3, 2, 2, 3}) EXPECT_EQ(deltas.next(), want);
  EXPECT_THROW(deltas.next(), DataError);
  EXPECT_EQ(DeltaReader(bytes, 9).remaining_bytes(), " rest");
  EXPECT_THROW(DeltaReader(bytes, 8), DataError) << "more numbers than in the page";
  EXPECT_THROW(DeltaReader("\x08\x00\x09\x0E"s, 9), DataError) << "no mini-blocks";
}

}  // namespace
}  // namespace hybrid_trainer
