#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>

#include "hybrid_trainer/data/tokenizer.h"
#include "temporary_folder.h"

namespace hybrid_trainer {
namespace {

const std::filesystem::path kGolden = HT_TEST_DATA_DIR;

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

/// Expects the ids that Hugging Face's tokenizers gave for each text.
void expect_golden_ids(const Tokenizer& tokenizer) {
  const auto golden = boost::json::parse(content_of(kGolden / "tokenizer_golden.json")).as_object();
  const auto& cases = golden.at("cases").as_array();
  ASSERT_GE(cases.size(), 1000u);
  for (const auto& value : cases) {
    const std::string hex(value.at("hex").as_string());
    const std::string text = from_hex(hex);
    const auto wanted = boost::json::value_to<std::vector<std::int32_t>>(value.at("ids"));
    ASSERT_EQ(tokenizer.encode(text), wanted) << "of the text " << hex;
    ASSERT_EQ(tokenizer.decode(wanted), text) << hex;
  }
}

TEST(TokenizerGolden, TokenizerJsonGivesTheIdsOfHuggingFace) {
  const auto tokenizer = load_tokenizer(kGolden / "bpe_small" / "tokenizer.json");
  EXPECT_EQ(tokenizer->vocabulary_size(), 600);
  EXPECT_EQ(tokenizer->end_of_text(), 599);
  expect_golden_ids(*tokenizer);
}

TEST(TokenizerGolden, VocabularyAndMergesGiveTheIdsOfHuggingFace) {
  const auto tokenizer = load_tokenizer(kGolden / "bpe_small" / "vocab.json");
  EXPECT_EQ(tokenizer->end_of_text(), 599);
  expect_golden_ids(*tokenizer);
}

TEST(TokenizerGolden, SavedAndLoadedAgainGivesTheSameIds) {
  const TemporaryFolder folder;
  load_tokenizer(kGolden / "bpe_small")->save(folder.path());
  expect_golden_ids(*load_tokenizer(folder.path()));
  expect_golden_ids(*load_tokenizer(folder / "merges.txt"));
  EXPECT_EQ(content_of(folder / "merges.txt"), content_of(kGolden / "bpe_small" / "merges.txt"));
}

}  // namespace
}  // namespace hybrid_trainer
