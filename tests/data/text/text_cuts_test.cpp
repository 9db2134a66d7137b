#include "src/data/text/word_splitter.h"

#include <gtest/gtest.h>

#include <array>

#include "hybrid_trainer/core/random.h"
#include "src/data/text/bpe_training.h"
#include "src/data/text/prepare.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_view_literals;

/// A text of `pieces` pieces, of which the seed allows a few, so some texts have no white space.
std::string random_text(std::uint64_t seed, std::size_t pieces) {
  static const std::array kPieces{"a"sv,           "s"sv,
                                  "ll"sv,          "re"sv,
                                  "'"sv,           "''"sv,
                                  "é"sv,           "漢"sv,
                                  "。"sv,          "1"sv,
                                  "２"sv,          "-"sv,
                                  " "sv,           "  "sv,
                                  "\n"sv,          "\r\n"sv,
                                  "\t"sv,          "x y"sv,
                                  "\0"sv,          "\xFF"sv,
                                  "\xE6\xBC"sv,    "\xF0\x9F\x98"sv,
                                  "\xC2\x85"sv,    "\u3000"sv,
                                  "😀"sv,           "\r"sv,
                                  "'s"sv,          "\u00A0"sv,
                                  "\u2028"sv,      "\x80\x80\x80"sv,
                                  ".\n\n  word"sv, "x"sv};
  const std::size_t kinds = 1 + random_word({seed, 1, 0}, 0) % 7;
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t kind = random_word({seed, 2, 0}, i) % kinds;
    text += kPieces[random_word({seed, 3, 0}, kind) % kPieces.size()];
  }
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  WordSplitter().for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::vector<TextSegment> segments_of(const std::string& text, std::int64_t segment_bytes,
                                     const SegmentReader::Cut& cut) {
  const TemporaryFolder folder;
  const auto file = folder.write("text", text);
  const auto path = std::make_shared<const std::filesystem::path>(file);
  SegmentReader reader({{path, 0, static_cast<std::int64_t>(text.size())}}, cut, segment_bytes);
  return reader.next(static_cast<std::int64_t>(text.size()));
}

std::vector<std::unique_ptr<Tokenizer>> all_tokenizers(const std::string& text) {
  BpeTrainer trainer(700);
  trainer.add(std::array{std::string_view(text)});
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(trainer.train().tokenizer);
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(make_character_tokenizer(text));

  const TemporaryFolder folder;
  tokenizers.front()->save(folder.path());
  std::string file = read_text(folder / "tokenizer.json");
  const std::string_view before = "\"add_prefix_space\":false";
  file.replace(file.find(before), before.size(), "\"add_prefix_space\":true");
  folder.write("tokenizer.json", file);
  tokenizers.push_back(load_tokenizer(folder.path()));
  return tokenizers;
}

/// Expects the concatenated words and tokens of the segments to equal those of the entire text.
void expect_equal_apart(const std::string& text, std::int64_t segment_bytes) {
  std::vector<std::string> words;
  for (const TextSegment& segment : segments_of(text, segment_bytes, last_word_cut)) {
    for (auto& word : words_of(segment.text)) words.push_back(std::move(word));
  }
  ASSERT_EQ(words, words_of(text));
  for (const auto& tokenizer : all_tokenizers(text)) {
    const auto cut = [&](std::string_view part, std::size_t first) {
      return tokenizer->last_split_point(part, first);
    };
    std::vector<std::int32_t> ids;
    for (const TextSegment& segment : segments_of(text, segment_bytes, cut)) {
      EXPECT_FALSE(segment.is_divided);
      tokenizer->append_tokens(
          segment.text, ids,
          segment.starts_document ? TextStart::kDocument : TextStart::kContinuation);
    }
    ASSERT_EQ(ids, tokenizer->encode(text)) << name_of(tokenizer->kind());
  }
}

TEST(TextCuts, SegmentTokensMatchWholeText) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    expect_equal_apart(random_text(seed, 300), 16 + static_cast<std::int64_t>(seed % 50));
    if (HasFatalFailure()) return;
  }
}

TEST(TextCuts, OverlongWordTokensMatchWholeText) {
  const std::array runs{"a"sv, "漢"sv, " "sv, "\n"sv,   "\u3000"sv,
                        "'"sv, "-'"sv, "7"sv, "\xFF"sv, "\x80"sv};
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::string text;
    for (std::uint64_t i = 0; i < 5; ++i) {
      const std::uint32_t random = random_word({seed, 9, 0}, i);
      const std::size_t wanted = text.size() + 40'000 + random % 100'000;
      while (text.size() < wanted) text += runs[random / 7 % runs.size()];
      text += random_text(random, 3);
    }
    expect_equal_apart(text, 90'000);
    if (HasFatalFailure()) return;
  }
}

TEST(TextCuts, UncuttableTextIsDividedBetweenCharacters) {
  std::string text;
  while (text.size() < static_cast<std::size_t>(SegmentReader::kLongestSegment) + 5'000'000)
    text += "漢";
  const auto segments = segments_of(text, 4 << 20, last_word_cut);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_TRUE(segments[0].is_divided);
  EXPECT_FALSE(segments[1].is_divided);
  EXPECT_EQ(segments[0].text.size() % 3, 0u);
  EXPECT_EQ(segments[0].text + segments[1].text, text);
}

TEST(TextCuts, WhiteSpaceMatchesGpt2Pattern) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;  // surrogates
    std::string text;
    append_utf8(value, text);
    const std::size_t bytes = text.size();
    text += text + "!";
    // A word of white space excludes the last white space before another character.
    ASSERT_EQ(gpt2_word_end(text, 0) == bytes, is_white_space(value)) << std::uint32_t{value};
  }
}

}  // namespace
}  // namespace hybrid_trainer
