#include "src/files/text.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

using namespace std::string_view_literals;

bool is_surrogate(char32_t value) { return value >= 0xD800 && value <= 0xDFFF; }

TEST(Utf8, RoundTripsEveryCodePointAndPrefix) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    std::string text;
    append_utf8(value, text);
    const CodePoint found = decode_utf8(text, 0);
    ASSERT_EQ(found.bytes, is_surrogate(value) ? 0 : text.size()) << std::uint32_t{value};
    if (is_surrogate(value)) continue;
    ASSERT_EQ(found.value, value);
    for (std::size_t bytes = 1; bytes <= text.size(); ++bytes) {
      const Utf8Prefix prefix = utf8_prefix(std::string_view(text).substr(0, bytes), 0);
      ASSERT_EQ(prefix.bytes, bytes) << std::uint32_t{value};
      ASSERT_EQ(prefix.length, text.size()) << std::uint32_t{value};
    }
  }
}

TEST(Utf8, InvalidSequenceGivesMaximalPrefix) {
  struct Case {
    std::string_view text;
    Utf8Prefix prefix;
  };
  for (const auto& [text, prefix] :
       {Case{"\x80", {1, 0}}, Case{"\xC1\x80", {1, 0}}, Case{"\xF5\x80\x80\x80", {1, 0}},
        Case{"\xFF", {1, 0}}, Case{"\xC3z", {1, 2}}, Case{"\xE0\x9F\xBF", {1, 3}},
        Case{"\xED\xA0\x80", {1, 3}}, Case{"\xE6\xBCz", {2, 3}}, Case{"\xF0\x8F\xBF\xBF", {1, 4}},
        Case{"\xF4\x90\x80\x80", {1, 4}}, Case{"\xF0\x9F\x98\xC3", {3, 4}}}) {
    EXPECT_EQ(utf8_prefix(text, 0).bytes, prefix.bytes) << ::testing::PrintToString(text);
    EXPECT_EQ(utf8_prefix(text, 0).length, prefix.length) << ::testing::PrintToString(text);
    EXPECT_EQ(decode_utf8(text, 0).bytes, 0u) << ::testing::PrintToString(text);
  }
  EXPECT_EQ(decode_utf8("a", 1).bytes, 0u);
}

TEST(Utf8, MeasuresValidAndInvalidRuns) {
  const std::string_view text = "eight bytes of ASCII, é漢😀\x80\xC3\xFFz"sv;
  const std::size_t valid = text.size() - 4;
  EXPECT_EQ(valid_utf8_bytes(text, 0), valid);
  EXPECT_EQ(valid_utf8_bytes(text, valid), 0u);
  EXPECT_EQ(invalid_utf8_bytes(text, valid), 3u);
  EXPECT_EQ(whole_characters("é漢", 4), 2u);
  EXPECT_EQ(whole_characters("é漢", 5), 5u);
  EXPECT_EQ(whole_characters("\x80\x80\x80\x80\x80", 3), 3u);
  EXPECT_EQ(whole_characters("\x80\x80\x80\x80\x80\x80", 5), 5u);
  EXPECT_EQ(whole_characters("漢", 2), 2u) << "a limit below one character is still respected";
  // Bytes after the end of the text are not read.
  EXPECT_EQ(whole_characters("a漢"sv.substr(0, 3), 3), 3u);
  EXPECT_EQ(whole_characters("a漢"sv, 3), 1u);
  EXPECT_EQ(whole_characters("a漢"sv, 0), 0u);
  EXPECT_EQ(whole_characters(""sv, 0), 0u);
}

}  // namespace
}  // namespace hybrid_trainer
