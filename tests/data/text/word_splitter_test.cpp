#include "src/data/text/word_splitter.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Words = std::vector<std::string>;

Words words_of(const WordSplitter& splitter, std::string_view text) {
  Words words;
  splitter.for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}
Words words_of(const std::string& expression, std::string_view text) {
  return words_of(WordSplitter(expression), text);
}

std::string all_characters() {
  std::string text;
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;  // surrogates
    for (const char* beside : {"a", " "}) {
      append_utf8(value, text);
      text += beside;
    }
  }
  return text;
}

// Compares the scanner's table with PCRE2, whose Unicode version is older.
TEST(WordSplitter, Gpt2ScannerMatchesItsExpression) {
  const std::string text = all_characters() + std::string(100'000, ' ') + "it's IT'S \n\n x";
  std::size_t end = 0;
  for (const auto& [from, to] : WordSplitter(word_expression(WordPattern::kGpt2)).matches(text)) {
    ASSERT_EQ(from, end);
    ASSERT_EQ(to, gpt2_word_end(text, from)) << text.substr(from, 20);
    end = to;
  }
  EXPECT_EQ(end, text.size());
}

TEST(WordSplitter, KnownExpressionsAreRecognized) {
  for (const WordPattern pattern :
       {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2, WordPattern::kQwen35,
        WordPattern::kTekken, WordPattern::kGpt4o})
    EXPECT_EQ(WordSplitter(word_expression(pattern)).pattern(), pattern);
  EXPECT_EQ(WordSplitter(R"(\p{L}+)").pattern(), WordPattern::kOther);
}

// Expected values by tokenizers 0.23.3: Split(Regex(expression), "isolated").
TEST(WordSplitter, DialectMatchesOniguruma) {
  EXPECT_EQ(words_of(R"(\w+|[^\w\s]+)", "b½a ½!"), (Words{"b½a", " ", "½", "!"}));
  EXPECT_EQ(words_of(R"([\w-]+)", "a-½b"), (Words{"a-", "½", "b"}));
  EXPECT_EQ(words_of(R"(\b)", "ab, c"), (Words{"ab", ", ", "c"}));
  EXPECT_EQ(words_of(R"(\h+)", "xcafe9 z"), (Words{"x", "cafe9", " z"}));
  EXPECT_EQ(words_of(R"([a[bc]d]+)", "xabcdx]"), (Words{"x", "abcd", "x]"}));
  EXPECT_EQ(words_of(R"( ?[^(\s|[.,!?…])]+)", "a b.c|d"), (Words{"a", " b", ".", "c", "|", "d"}));
  EXPECT_EQ(words_of(R"([[:alpha:]]+|[[:punct:]])", "né=1."), (Words{"né", "=", "1", "."}));
  EXPECT_EQ(words_of("(?m)a.b", "a\nb"), (Words{"a\nb"}));
  EXPECT_EQ(words_of("^a|b$", "ab\nab"), (Words{"a", "b", "\n", "a", "b"}));
  EXPECT_EQ(words_of("a{,2}b", "aaab"), (Words{"a", "aab"}));
  EXPECT_EQ(words_of("a++b", "aab"), (Words{"aab"}));
  EXPECT_EQ(words_of(R"(\u0061b)", "xab"), (Words{"x", "ab"}));
  EXPECT_EQ(words_of(R"(\v|\t)", "a\vb\nc"), (Words{"a", "\v", "b\nc"}));
}

TEST(WordSplitter, EmptyMatchCutsText) {
  EXPECT_EQ(words_of("(?=[A-Z])", "aBcD"), (Words{"a", "Bc", "D"}));
  EXPECT_EQ(words_of("x*", "axxb"), (Words{"a", "xx", "b"}));
  EXPECT_EQ(words_of("", "aé"), (Words{"a", "é"}));
}

TEST(WordSplitter, InvalidUtf8EndsPrecedingText) {
  const WordSplitter splitter(R"(\s+(?!\S)|\s+|\S+)");
  EXPECT_EQ(words_of(splitter, "a  \xFF\x80  b\xE6"),
            (Words{"a", "  ", "\xFF\x80", " ", " ", "b", "\xE6"}));
  EXPECT_EQ(words_of(splitter, "\xFF"), (Words{"\xFF"}));
  EXPECT_EQ(words_of(splitter, ""), Words{});
}

TEST(WordSplitter, RejectsExpressionsPcre2ReadsDifferently) {
  for (const char* expression :
       {"[a-c&&b]", "[^[^a]]", R"([\W])", "[[:^alpha:]]", "(*FAIL)", "a{1,3}+b", "a{2}?"})
    expect_words(message_of<DataError>([&] { WordSplitter{expression}; }), {"not supported"});
  expect_words(message_of<DataError>([] { WordSplitter("(?<=a+)b"); }), {"lookbehind"});
}

TEST(WordSplitter, ExponentialExpressionThrows) {
  const WordSplitter splitter("(a+)+b|.");
  expect_words(message_of<DataError>([&] { words_of(splitter, std::string(60, 'a')); }),
               {"(a+)+b|.", "60 bytes", "match limit"});
}

TEST(WordSplitter, FindsLongGroupMatch) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "a1";
  EXPECT_EQ(words_of("(?:[a-z][0-9])+", text), Words{text});
}

}  // namespace
}  // namespace hybrid_trainer
