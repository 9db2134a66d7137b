#include "src/data/parquet/encodings.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_literals;

std::string unsnapped(const std::string& in, std::size_t size) {
  std::string out;
  decompress_page(1, in, size, out);
  return out;
}

TEST(Snappy, DecodesLiteralsAndCopies) {
  EXPECT_EQ(unsnapped("\x00"s, 0), "");
  EXPECT_EQ(unsnapped("\x0A\x04"
                      "ab\x11\x02"s,
                      10),
            "ababababab");
}

TEST(Snappy, RejectsDamagedData) {
  for (const auto& [in, size] :
       std::vector<std::pair<std::string, std::size_t>>{{"", 0},  // without a length
                                                        {"\x03\x08"
                                                         "abc"s,
                                                         4},  // a different length
                                                        {"\x03\x08"
                                                         "ab"s,
                                                         3},  // a truncated literal
                                                        {"\x0A\x04"
                                                         "ab\x11\x03"s,
                                                         10},  // a copy from before the start
                                                        {"\x0A\x04"
                                                         "ab\x11\x00"s,
                                                         10},  // a copy from itself
                                                        {"\x02\x04"
                                                         "ab\x11\x02"s,
                                                         2},  // more than declared
                                                        {"\x09\x04"
                                                         "ab"s,
                                                         9},  // less than declared
                                                        {"\xFF\xFF\xFF\xFF\xFF\xFF"s, 9}})
    EXPECT_THROW(unsnapped(in, size), DataError) << ::testing::PrintToString(in);
}

TEST(PageCodec, ErrorsNameCodec) {
  std::string out;
  expect_words(message_of<DataError>([&] { decompress_page(4, "", 1, out); }), {"BROTLI", "zstd"});
  expect_words(message_of<DataError>([&] { decompress_page(6, "xx", 1, out); }), {"zstd"});
  expect_words(message_of<DataError>([&] { decompress_page(2, "xx", 1, out); }), {"gzip"});
  expect_words(message_of<DataError>([&] { decompress_page(0, "xx", 1, out); }), {"uncompressed"});
}

}  // namespace
}  // namespace hybrid_trainer
