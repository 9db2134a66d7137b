#include "hybrid_trainer/data/tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/data/text/bpe_training.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::string random_bytes(std::uint64_t seed, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t word = random_word({seed, 0, 0}, i);
    // Bytes that form words, spaces and parts of UTF-8 characters: half of the random bytes.
    constexpr std::string_view kFrequent =
        "aabt   \n\r\t'ls19\xE2\x82\xAC\xC3\xA9\xED\xA0\x80\xF0\x9F\xC2\x85";
    bytes.push_back(word & 1 ? static_cast<char>(word >> 8)
                             : kFrequent[(word >> 8) % kFrequent.size()]);
  }
  return bytes;
}

std::unique_ptr<Tokenizer> trained(std::string_view corpus, std::int64_t vocabulary_size) {
  BpeTrainer trainer(vocabulary_size);
  trainer.add(std::array{corpus});
  return std::move(trainer.train().tokenizer);
}

/// Every code point, including those that UTF-8 forbids.
std::string all_code_points() {
  std::string text;
  for (char32_t value = 0; value < 0x110000; ++value) append_utf8(value, text);
  return text;
}

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, BpeRoundTripsRandomBytes) {
  const auto tokenizer = trained(random_bytes(1, 200000), 700);
  ASSERT_EQ(tokenizer->vocabulary_size(), 700);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    expect_round_trip(*tokenizer, random_bytes(seed, 1 + seed * 7));
  }
}

TEST(Tokenizer, BpeRoundTripsEveryCodePoint) {
  const auto tokenizer = trained("the cat sat on the mat, the cat", 260);
  expect_round_trip(*tokenizer, all_code_points());
}

TEST(Tokenizer, BytesAndCharactersRoundTrip) {
  const std::string text = all_code_points() + random_bytes(3, 50000);
  expect_round_trip(*make_byte_tokenizer(), text);
  expect_round_trip(*make_character_tokenizer(text), text);
}

TEST(Tokenizer, NumbersCharactersByCodePointThenBytes) {
  const auto tokenizer = make_character_tokenizer("bé\xFF\n a\x80 ba");
  EXPECT_EQ(tokenizer->vocabulary_size(), 7);
  const std::vector<std::string> tokens{"\n", " ", "a", "b", "é", "\x80", "\xFF"};
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    EXPECT_EQ(tokenizer->token_bytes(static_cast<std::int32_t>(id)), tokens[id]);
  }
  EXPECT_EQ(tokenizer->encode("é\xFF"
                              "a"),
            (std::vector<std::int32_t>{4, 6, 2}));
  EXPECT_FALSE(tokenizer->end_of_text());
}

TEST(Tokenizer, ReportsUnknownCharacterWithPosition) {
  const auto tokenizer = make_character_tokenizer("abc");
  expect_words(message_of<DataError>([&] { tokenizer->encode("abcé"); }),
               {"U+00E9", "é", "byte 3"});
  expect_words(message_of<DataError>([&] { tokenizer->encode("a\xFE"); }), {"0xFE", "byte 1"});
}

TEST(Tokenizer, RejectsIdOutsideVocabulary) {
  const auto tokenizer = make_byte_tokenizer();
  expect_words(message_of<DataError>([&] { tokenizer->decode(std::array{65, 256}); }), {"256"});
  expect_words(message_of<DataError>([&] { tokenizer->token_bytes(-1); }), {"-1"});
}

TEST(Tokenizer, SpelledSpecialTokenEncodesAsText) {
  const auto tokenizer = trained("<|endoftext|><|endoftext|> endoftext <|endoftext|>", 400);
  const std::string text = "a<|endoftext|>b";
  for (const std::int32_t id : tokenizer->encode(text)) EXPECT_NE(id, tokenizer->end_of_text());
  expect_round_trip(*tokenizer, text);
}

TEST(Tokenizer, LongWordsDoNotTakeQuadraticTime) {
  const auto tokenizer = trained(std::string(1000, 'a') + std::string(1000, ' '), 300);
  for (const char c : {'a', ' ', '-', '7', '\n', '\xFF'}) {
    const std::string text(1'000'000, c);
    expect_round_trip(*tokenizer, text);  // quadratic time would take minutes
  }
  std::string letters;
  while (letters.size() < 1'000'000) letters += "éж漢a";
  expect_round_trip(*tokenizer, letters);
}

TEST(Tokenizer, LongAndShortWordsMergeAlike) {
  // Word lengths around the change of algorithm. Each run of 2^k letters is one token.
  const auto tokenizer = trained(std::string(256, 'a'), 262);
  for (std::size_t size = 1; size < 100; ++size) {
    std::vector<std::size_t> lengths;
    for (const auto id : tokenizer->encode(std::string(size, 'a'))) {
      lengths.push_back(tokenizer->token_bytes(id).size());
    }
    std::vector<std::size_t> wanted(size / 32, 32);
    for (std::size_t part = 16; part >= 1; part /= 2) {
      if (size & part) wanted.push_back(part);
    }
    EXPECT_EQ(lengths, wanted) << size;
  }
}

TEST(Tokenizer, ConcurrentCallsAgree) {
  const std::string text = random_bytes(5, 100000);
  const auto tokenizer = trained(text, 500);
  const auto wanted = tokenizer->encode(text);
  std::vector<std::vector<std::int32_t>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& ids : got) threads.emplace_back([&] { ids = tokenizer->encode(text); });
  }
  for (const auto& ids : got) EXPECT_EQ(ids, wanted);
}

}  // namespace
}  // namespace hybrid_trainer
