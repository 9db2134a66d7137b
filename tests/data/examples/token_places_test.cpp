#include "src/data/examples/row_tokens.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

std::string golden(const char* name) {
  return std::string(HT_TEST_DATA_DIR "/tokenizers/") + name + ".json";
}

/// Expects each text part's token range to match the token counts of the encoded prefixes.
void expect_places(const Tokenizer& tokenizer, const std::string& text,
                   const std::vector<std::size_t>& bytes) {
  const auto tokens = tokenizer.encode(text, ControlText::kAsTokens);
  TokenOffsets places(text, tokens, tokenizer);
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    const auto count = [&](std::size_t end) {
      return tokenizer.encode(std::string_view(text).substr(0, end), ControlText::kAsTokens).size();
    };
    const auto found = places.within(bytes[i], bytes[i + 1]);
    ASSERT_TRUE(found.has_value()) << text;
    EXPECT_EQ(found->first, count(bytes[i])) << text;
    EXPECT_EQ(found->second, count(bytes[i + 1])) << text;
  }
}

TEST(TokenOffsets, RangesMatchTokenCountsOfPrefixes) {
  for (const char* name : {"llama3", "qwen2", "llama2_legacy", "llama2_metaspace", "gemma"}) {
    const auto tokenizer = load_tokenizer(golden(name));
    const std::string text = "one\ntwo\nthree";
    expect_places(*tokenizer, text, {0, text.size()});
  }
  const auto small = load_tokenizer(HT_TEST_DATA_DIR "/bpe_small/tokenizer.json");
  const std::string chat = "<|endoftext|>the thing<|endoftext|> the\n<|endoftext|>";
  expect_places(*small, chat, {0, 13, 22, 35, 40, 53});
}

TEST(TokenOffsets, TokenAcrossBoundaryIsInNeitherPart) {
  const auto tokenizer = load_tokenizer(HT_TEST_DATA_DIR "/bpe_small/tokenizer.json");
  const std::string text = "0ing1";
  const auto tokens = tokenizer->encode(text, ControlText::kAsTokens);
  ASSERT_EQ(tokens.size(), 3u);  // "0", "ing", "1"
  TokenOffsets places(text, tokens, *tokenizer);
  EXPECT_EQ(places.within(0, 2), std::pair(std::size_t{0}, std::size_t{1}));
  EXPECT_EQ(places.within(2, 5), std::pair(std::size_t{2}, std::size_t{3}));
  EXPECT_EQ(places.within(1, 4), std::pair(std::size_t{1}, std::size_t{2}));
}

}  // namespace
}  // namespace hybrid_trainer
