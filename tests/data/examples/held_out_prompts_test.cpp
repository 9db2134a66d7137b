#include "src/data/examples/held_out_prompts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hybrid_trainer {
namespace {

ExampleRow row_of(const Tokenizer& tokenizer, const std::string& prompt,
                  const std::string& answer) {
  ExampleRow row;
  row.tokens = tokenizer.encode(prompt + answer);
  row.is_target.assign(row.tokens.size(), false);
  std::fill(row.is_target.begin() + std::ssize(prompt), row.is_target.end(), true);
  return row;
}

TEST(HeldOutPrompts, TakesFirstDistinctPromptsThatFit) {
  const auto tokenizer = make_byte_tokenizer();
  ExampleRow text = row_of(*tokenizer, " ", "only text");
  const std::vector<ExampleRow> rows = {text,
                                        row_of(*tokenizer, "Who?\n", "I."),
                                        row_of(*tokenizer, "Who?\n", "You."),
                                        row_of(*tokenizer, "A prompt that is too long", "x"),
                                        row_of(*tokenizer, "When?", " now"),
                                        row_of(*tokenizer, "Where?", " here")};
  const std::vector<HeldOutPrompt> prompts = held_out_prompts(rows, *tokenizer, 2, 10);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].text, "Who?");
  EXPECT_EQ(prompts[0].wanted, "I.");
  EXPECT_EQ(prompts[0].tokens, tokenizer->encode("Who?\n"));
  EXPECT_EQ(prompts[1].text, "When?");
  EXPECT_EQ(prompts[1].wanted, "now");
  EXPECT_TRUE(held_out_prompts(rows, *tokenizer, 0, 10).empty());
}

TEST(HeldOutPrompts, PairExpectsChosenAnswer) {
  const auto tokenizer = make_byte_tokenizer();
  ExampleRow row = row_of(*tokenizer, "Who?", "I.You.");
  row.rejected_at = 6;
  EXPECT_EQ(held_out_prompts({row}, *tokenizer, 1, 10).at(0).wanted, "I.");
}

TEST(HeldOutPrompts, ChatPromptShowsLastMessage) {
  const auto tokenizer = load_tokenizer(HT_TEST_DATA_DIR "/tokenizers/llama3.json");
  ExampleRow row;
  row.tokens = tokenizer->encode(
      "<|begin_of_text|>system 1 2<|end_of_text|>user\n0 1 2\n<|end_of_text|>assistant\n0",
      ControlText::kAsTokens);
  row.is_target.assign(row.tokens.size(), false);
  row.is_target.back() = true;
  EXPECT_EQ(held_out_prompts({row}, *tokenizer, 1, 99).at(0).text, "user\n0 1 2");
  row.tokens = tokenizer->encode(
      "<|begin_of_text|>You are kind.<|end_of_text|>user<|end_of_text|>你好<|end_of_text|>"
      "assistant<|end_of_text|>0",
      ControlText::kAsTokens);
  row.is_target.assign(row.tokens.size(), false);
  row.is_target.back() = true;
  EXPECT_EQ(held_out_prompts({row}, *tokenizer, 1, 99).at(0).text, "你好") << "a single word";
}

}  // namespace
}  // namespace hybrid_trainer
