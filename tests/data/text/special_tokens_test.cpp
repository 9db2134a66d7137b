#include <gtest/gtest.h>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/tokenizer_files.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

TEST(SpecialTokens, ComeFromTheFiles) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_text(golden("bpe_small/tokenizer.json")));
  const SpecialTokenIds plain = special_token_ids_of(*load_tokenizer(folder.path()));
  EXPECT_EQ(plain.ids, (std::vector<std::int32_t>{599}));
  EXPECT_FALSE(plain.mask.has_value());
  folder.write("tokenizer_config.json", R"({"mask_token": {"content": "<|endoftext|>"}})");
  EXPECT_EQ(special_token_ids_of(*load_tokenizer(folder.path())).mask, 599);
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "599": {"content": "<|endoftext|>", "special": true},
      "600": {"content": "[MASK]", "special": true}}})");
  const SpecialTokenIds named = special_token_ids_of(*load_tokenizer(folder.path()));
  EXPECT_EQ(named.ids, (std::vector<std::int32_t>{599, 600}));
  EXPECT_EQ(named.mask, 600);
  EXPECT_FALSE(special_token_ids_of(*make_byte_tokenizer()).mask.has_value());
}

TEST(SpecialTokens, ComeFromFilesAboveOneMebibyte) {
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 3000; ++i) tokens.push_back(std::to_string(i) + std::string(400, 'x'));
  const auto tokenizer = make_word_piece_tokenizer(tokens);
  ASSERT_GT(tokenizer->files().at("tokenizer.json").size(), std::size_t{1} << 20);
  EXPECT_EQ(special_token_ids_of(*tokenizer).mask, 4);
}

TEST(WordContinuations, FollowFromLeadingBlanks) {
  const auto letters = make_character_tokenizer("a b\nc");
  EXPECT_EQ(word_continuations(*letters), (std::vector<bool>{false, false, true, true, true}));
  const auto bytes = load_tokenizer(golden("bpe_small/tokenizer.json"));
  const auto ids = bytes->encode(" the");
  ASSERT_EQ(ids.size(), 1u);
  EXPECT_FALSE(word_continuations(*bytes)[static_cast<std::size_t>(ids[0])]);
  EXPECT_TRUE(word_continuations(*bytes)[static_cast<std::size_t>(bytes->encode("a")[0])]);
}

}  // namespace
}  // namespace hybrid_trainer::testing
