#include "src/data/examples/row_tokens.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(EnclosedText, EndsWithOneEndOfTextToken) {
  const auto tokenizer = load_tokenizer(HT_TEST_DATA_DIR "/bpe_small/tokenizer.json");
  const auto enclosed = [&](const char* text, std::int64_t longest = 100) {
    const EnclosedText made = enclosed_text(text, *tokenizer, ControlText::kAsTokens, longest);
    EXPECT_LE(std::ssize(made.tokens), longest);
    return tokenizer->decode(made.tokens);
  };
  EXPECT_EQ(enclosed("012"), "012<|endoftext|>");
  EXPECT_EQ(enclosed("012<|endoftext|>"), "012<|endoftext|>");
  EXPECT_EQ(enclosed(""), "<|endoftext|>");
  EXPECT_EQ(enclosed("01234", 3), "01<|endoftext|>");
  EXPECT_EQ(enclosed("01234", 1), "<|endoftext|>");
  EXPECT_EQ(enclosed_text("01234", *tokenizer, ControlText::kAsTokens, 3).left_out, 3);
}

}  // namespace
}  // namespace hybrid_trainer
