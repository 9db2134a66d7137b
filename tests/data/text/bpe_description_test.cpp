#include "src/data/text/tokenizer_steps.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

class BpeDescriptionTest : public ::testing::Test {
 protected:
  /// Parses a tokenizer.json with these parts.
  BpeDescription described(const std::string& pre, const std::string& normalizer,
                           const std::string& more = "", const std::string& settings = "") {
    const bool is_whole = pre == "null" || pre.find("ByteLevel") == std::string::npos;
    std::string vocabulary = R"("<unk>": 0, "a": 1, "b": 2, "ab": 3)";
    if (is_whole) vocabulary += R"(, "<0x0A>": 4, "▁": 5)";
    folder_.write("tokenizer.json",
                  concat(R"({"version": "1.0", "added_tokens": [
                 {"id": 0, "content": "<unk>", "special": true},
                 {"id": 9, "content": "<tool>", "special": false}],
                 "normalizer": )",
                         normalizer, R"(, "pre_tokenizer": )", pre, R"(, "decoder": null,
                 "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": )",
                         is_whole ? "true" : "false", more, R"(, "vocab": {)", vocabulary,
                         R"(}, "merges": [["a", "b"]]}})"));
    if (!settings.empty()) folder_.write("tokenizer_config.json", settings);
    return describe_bpe(*load_tokenizer(folder_ / ""));
  }
  TemporaryFolder folder_;
};

constexpr const char* kBytes = R"({"type": "ByteLevel", "add_prefix_space": false})";

TEST_F(BpeDescriptionTest, DescribesByteLevelTokenizers) {
  const BpeDescription gpt2 = described(kBytes, "null");
  EXPECT_EQ(gpt2.words, BpeWords::kGpt2);
  EXPECT_FALSE(gpt2.adds_prefix_space);
  EXPECT_EQ(gpt2.merges, (std::vector<std::pair<std::string, std::string>>{{"a", "b"}}));
  ASSERT_GE(gpt2.tokens.size(), 5u);
  EXPECT_EQ(gpt2.tokens[3], "ab");
  EXPECT_EQ(gpt2.uses[3], TokenUse::kText);
  EXPECT_EQ(gpt2.uses[0], TokenUse::kSpecial);
  EXPECT_EQ(gpt2.tokens.back(), "<tool>");
  EXPECT_EQ(gpt2.uses.back(), TokenUse::kAdded);
  const std::string digits = concat(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, )",
      kBytes, "]}");
  EXPECT_EQ(described(digits, "null").words, BpeWords::kGpt2Digits);
  EXPECT_TRUE(described(kBytes, R"({"type": "NFC"})").composes);
  EXPECT_EQ(described(kBytes, R"({"type": "Prepend", "prepend": "x"})").words, BpeWords::kOther);
}

TEST_F(BpeDescriptionTest, ReadsPrefixSpaceFromTokenizerConfig) {
  const BpeDescription found = described(kBytes, "null", "", R"({"add_prefix_space": true})");
  EXPECT_EQ(found.words, BpeWords::kGpt2);
  EXPECT_TRUE(found.adds_prefix_space);
}

TEST_F(BpeDescriptionTest, DescribesWholeTextTokenizers) {
  constexpr const char* kReplace =
      R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})";
  const BpeDescription gemma = described(
      R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})",
      kReplace);
  EXPECT_EQ(gemma.words, BpeWords::kWholeText);
  EXPECT_FALSE(gemma.adds_prefix_space);
  EXPECT_EQ(gemma.uses[0], TokenUse::kUnknown);
  EXPECT_EQ(gemma.uses[4], TokenUse::kByte);
  const BpeDescription llama2 = described(
      "null",
      concat(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, )",
             kReplace, "]}"));
  EXPECT_EQ(llama2.words, BpeWords::kWholeText);
  EXPECT_TRUE(llama2.adds_prefix_space);
  EXPECT_FALSE(llama2.keeps_first_space);
  const BpeDescription mistral = described(
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})",
      "null");
  EXPECT_EQ(mistral.words, BpeWords::kWholeText);
  EXPECT_TRUE(mistral.adds_prefix_space);
  EXPECT_TRUE(mistral.keeps_first_space);
  EXPECT_EQ(described(R"({"type": "Metaspace", "replacement": "▁", "split": true})", "null").words,
            BpeWords::kOther);
}

}  // namespace
}  // namespace hybrid_trainer::testing
