#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

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

/// Expects the ids of Hugging Face's tokenizers for each text.
void expect_golden_ids(const Tokenizer& tokenizer) {
  const auto golden = boost::json::parse(read_text(kGolden / "tokenizer_golden.json")).as_object();
  const auto& cases = golden.at("cases").as_array();
  ASSERT_GE(cases.size(), 1000u);
  for (const auto& value : cases) {
    const std::string hex(value.at("hex").as_string());
    const std::string text = from_hex(hex);
    const auto wanted = boost::json::value_to<std::vector<std::int32_t>>(value.at("ids"));
    ASSERT_EQ(tokenizer.encode(text), wanted) << "text " << hex;
    ASSERT_EQ(tokenizer.decode(wanted), text) << hex;
  }
}

TEST(TokenizerGolden, TokenizerJsonMatchesHuggingFace) {
  const auto tokenizer = load_tokenizer(kGolden / "bpe_small" / "tokenizer.json");
  EXPECT_EQ(tokenizer->vocabulary_size(), 600);
  EXPECT_EQ(tokenizer->end_of_text(), 599);
  expect_golden_ids(*tokenizer);
}

TEST(TokenizerGolden, VocabularyAndMergesMatchHuggingFace) {
  const auto tokenizer = load_tokenizer(kGolden / "bpe_small" / "vocab.json");
  EXPECT_EQ(tokenizer->end_of_text(), 599);
  expect_golden_ids(*tokenizer);
}

TEST(TokenizerGolden, SavedTokenizerMatchesHuggingFace) {
  const TemporaryFolder folder;
  load_tokenizer(kGolden / "bpe_small")->save(folder.path());
  expect_golden_ids(*load_tokenizer(folder.path()));
  expect_golden_ids(*load_tokenizer(folder / "merges.txt"));
  EXPECT_EQ(read_text(folder / "merges.txt"), read_text(kGolden / "bpe_small" / "merges.txt"));
}

/// Replaces each maximal invalid UTF-8 prefix by U+FFFD.
std::string with_replacements(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto [bytes, length] = utf8_prefix(text, i);
    result += bytes == length ? std::string(text.substr(i, bytes)) : "\uFFFD";
    i += bytes;
  }
  return result;
}

using Ids = std::vector<std::int32_t>;

class TokenizerPipelines : public ::testing::TestWithParam<const char*> {
 protected:
  static const boost::json::object& golden() {
    static const boost::json::value all =
        boost::json::parse(read_text(kGolden / "tokenizer_pipelines.json"));
    return all.get_object();
  }
  const boost::json::value& answer(const char* name) const {
    return golden().at("tokenizers").at(GetParam()).at(name);
  }
  std::filesystem::path file() const {
    return kGolden / "tokenizers" / (std::string(GetParam()) + ".json");
  }
  std::string text(std::size_t i) const {
    return from_hex(std::string(golden().at("texts").at(i).as_string()));
  }
  std::size_t texts() const { return golden().at("texts").as_array().size(); }
};

TEST_P(TokenizerPipelines, IdsAndTextsMatchHuggingFace) {
  const auto tokenizer = load_tokenizer(file());
  ASSERT_GE(texts(), 70u);
  for (std::size_t i = 0; i < texts(); ++i) {
    SCOPED_TRACE(::testing::PrintToString(text(i)));
    const auto wanted = boost::json::value_to<Ids>(answer("ids").at(i));
    EXPECT_EQ(tokenizer->encode(text(i)), wanted);
    const auto* control = answer("ids_with_control").as_object().if_contains(std::to_string(i));
    EXPECT_EQ(tokenizer->encode(text(i), ControlText::kAsTokens),
              control == nullptr ? wanted : boost::json::value_to<Ids>(*control));
    EXPECT_EQ(with_replacements(tokenizer->decode(wanted)),
              from_hex(std::string(answer("decoded").at(i).as_string())));
  }
  const auto& some = answer("random_ids").as_array();
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(with_replacements(tokenizer->decode(boost::json::value_to<Ids>(some[i]))),
              from_hex(std::string(answer("random_decoded").at(i).as_string())));
  }
}

TEST_P(TokenizerPipelines, TemplateEnclosesDocument) {
  const auto tokenizer = load_tokenizer(file());
  Ids ids = tokenizer->template_start();
  tokenizer->append_tokens(text(1), ids);
  for (const std::int32_t id : tokenizer->template_end()) ids.push_back(id);
  EXPECT_EQ(ids, boost::json::value_to<Ids>(answer("ids_of_document")));
}

TEST_P(TokenizerPipelines, SavedFileEqualsOriginal) {
  const TemporaryFolder folder;
  load_tokenizer(file())->save(folder.path());
  EXPECT_EQ(read_text(folder / "tokenizer.json"), read_text(file()));
}

TEST_P(TokenizerPipelines, LastCutPreservesTokens) {
  const auto tokenizer = load_tokenizer(file());
  std::size_t cuts = 0;
  for (std::size_t i = 0; i < texts(); ++i) {
    for (std::size_t end = text(i).size(); end > 1;) {
      const std::size_t cut = tokenizer->last_split_point(text(i).substr(0, end), 1);
      if (cut == 0) break;
      for (const ControlText control : {ControlText::kAsText, ControlText::kAsTokens}) {
        Ids ids = tokenizer->encode(text(i).substr(0, cut), control);
        tokenizer->append_tokens(text(i).substr(cut), ids, TextStart::kContinuation, control);
        EXPECT_EQ(ids, tokenizer->encode(text(i), control)) << text(i) << " at " << cut;
      }
      ++cuts;
      end = cut;
    }
  }
  // Tokenizers that split at strings or lack tokens for some bytes allow no cut.
  const std::string name = GetParam();
  EXPECT_EQ(cuts == 0, name == "splits" || name == "metaspace_never");
}

TEST_P(TokenizerPipelines, LongRunsDoNotTakeQuadraticTime) {
  const auto tokenizer = load_tokenizer(file());
  for (const std::string_view part : {"a", "ab", "\u4E2D", " "}) {
    std::string long_text;
    while (long_text.size() < 300'000) long_text += part;
    EXPECT_FALSE(tokenizer->encode(long_text).empty());  // quadratic time would take minutes
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerPipelines,
                         ::testing::Values("gpt2_prefix", "llama3", "qwen2", "smollm2", "edges",
                                           "llama2_legacy", "llama2_metaspace", "metaspace_always",
                                           "metaspace_never", "gemma", "splits", "qwen35",
                                           "mistral_nemo", "gpt4o", "missing_bytes",
                                           "missing_bytes_unk", "holes", "no_decoder", "neox"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerGolden, EncodesInvalidUtf8AsBytes) {
  for (const char* name : {"llama3", "smollm2", "qwen2"}) {
    const auto tokenizer = load_tokenizer(kGolden / "tokenizers" / concat(name, ".json"));
    const std::string text = "ab \xFF\xC3 c\xE2\x82";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
  }
  const auto falls_back = load_tokenizer(kGolden / "tokenizers/gemma.json");
  const Ids ids = falls_back->encode("a\xFF\xC3");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(falls_back->token_bytes(ids[1]), "\xFF");
  EXPECT_EQ(falls_back->token_bytes(ids[2]), "\xC3");
  const auto knows_no_bytes = load_tokenizer(kGolden / "tokenizers/metaspace_always.json");
  const Ids unknown = knows_no_bytes->encode("\xFF");
  ASSERT_FALSE(unknown.empty());
  EXPECT_EQ(knows_no_bytes->token_bytes(unknown.back()), "<unk>");
}

}  // namespace
}  // namespace hybrid_trainer
