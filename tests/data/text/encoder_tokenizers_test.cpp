#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

const json::value& encoder_golden() {
  static const json::value all =
      json::parse(read_text(std::filesystem::path(HT_TEST_DATA_DIR) / "encoder_tokenizers.json"));
  return all;
}

std::string text_of(std::size_t i) {
  return std::string(encoder_golden().at("texts").at(i).as_string());
}

/// Tiny tokenizers with the pipelines of encoders.
class EncoderTokenizers : public ::testing::TestWithParam<const char*> {
 protected:
  const json::value& answers() const { return encoder_golden().at("tokenizers").at(GetParam()); }
  std::unique_ptr<Tokenizer> load() const {
    folder_.write("tokenizer.json", json::serialize(answers().at("json")));
    return load_tokenizer(folder_.path());
  }
  const TemporaryFolder folder_;
};

void expect_answer(const Tokenizer& tokenizer, const std::string& text, ControlText control,
                   const json::value& wanted) {
  SCOPED_TRACE(::testing::PrintToString(text));
  const ModelInput input = tokenizer.encode_texts(text, {}, {}, control);
  EXPECT_EQ(input.ids, json::value_to<Ids>(wanted.at(0)));
  EXPECT_EQ(input.types, json::value_to<Ids>(wanted.at(1)));
  EXPECT_EQ(tokenizer.decode(input.ids), std::string(wanted.at(2).as_string()));
}

TEST_P(EncoderTokenizers, IdsTypesAndTextsMatchHuggingFace) {
  const auto tokenizer = load();
  const std::size_t texts = encoder_golden().at("texts").as_array().size();
  ASSERT_GE(texts, 13u);
  for (std::size_t i = 0; i < texts; ++i)
    expect_answer(*tokenizer, text_of(i), ControlText::kAsText, answers().at("single").at(i));
  const auto control = static_cast<std::size_t>(encoder_golden().at("control").as_int64());
  expect_answer(*tokenizer, text_of(control), ControlText::kAsTokens, answers().at("control"));
}

TEST_P(EncoderTokenizers, TruncatedPairsMatchHuggingFace) {
  const auto tokenizer = load();
  const std::map<std::string, Truncation> truncations{{"longest_first", Truncation::kLongestFirst},
                                                      {"only_first", Truncation::kOnlyFirst},
                                                      {"only_second", Truncation::kOnlySecond}};
  for (const json::value& pair : answers().at("pairs").as_array()) {
    SCOPED_TRACE(json::serialize(pair));
    const std::string first = text_of(static_cast<std::size_t>(pair.at(0).as_int64())),
                      second = text_of(static_cast<std::size_t>(pair.at(1).as_int64()));
    const TokenLimit limit{
        .ids = pair.at(2).as_int64(),
        .truncation = truncations.at(std::string(pair.at(3).as_string())),
        .end = pair.at(4).as_string() == "left" ? TruncatedEnd::kLeft : TruncatedEnd::kRight};
    const auto encode = [&] {
      return tokenizer->encode_texts(first, second, limit, ControlText::kAsText);
    };
    if (pair.at(5).is_null()) {
      expect_words(message_of<DataError>(encode), {"text has", "limit"});
      continue;
    }
    const ModelInput input = encode();
    EXPECT_EQ(input.ids, json::value_to<Ids>(pair.at(5)));
    EXPECT_EQ(input.types, json::value_to<Ids>(pair.at(6)));
  }
}

TEST_P(EncoderTokenizers, SavedFileEqualsOriginal) {
  const TemporaryFolder saved;
  load()->save(saved.path());
  EXPECT_EQ(read_text(saved / "tokenizer.json"), read_text(folder_ / "tokenizer.json"));
}

TEST_P(EncoderTokenizers, WordsContinueWithPrefixOrWithoutBlank) {
  const std::vector<bool> continues = word_continuations(*load());
  const json::value& model = answers().at("json").at("model");
  std::size_t tokens = 0, starts = 0;
  const auto expect = [&](std::string_view token, std::size_t id, bool wanted) {
    if (token.starts_with('<') || token.starts_with('[')) return;  // added tokens and bytes
    EXPECT_EQ(continues.at(id), wanted) << token;
    ++tokens;
    starts += wanted ? 0 : 1;
  };
  if (model.at("type").as_string() == "WordPiece") {
    for (const auto& [token, id] : model.at("vocab").as_object())
      expect(token, static_cast<std::size_t>(id.as_int64()), token.starts_with("##"));
  } else {
    std::size_t id = 0;
    for (const json::value& piece : model.at("vocab").as_array()) {
      const std::string token(piece.at(0).as_string());
      expect(token, id++, !token.starts_with("\u2581"));
    }
  }
  EXPECT_GE(starts, 3u);
  EXPECT_GT(tokens, starts);
}

INSTANTIATE_TEST_SUITE_P(All, EncoderTokenizers,
                         ::testing::Values("bert", "bert_cased", "whitespace", "punctuation",
                                           "xlm_roberta", "t5", "bytes", "whole"));

/// BERT's vocab.txt without a tokenizer.json.
class VocabularyFile : public ::testing::Test {
 protected:
  VocabularyFile() {
    folder_.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncafe\nCafé\n世\n##s\n");
  }
  Ids ids(const std::string& config, const std::string& text) const {
    folder_.write("tokenizer_config.json", config);
    return load_tokenizer(folder_.path())->encode_texts(text).ids;
  }
  const TemporaryFolder folder_;
};

TEST_F(VocabularyFile, DefaultsLowerCaseAndStripAccents) {
  EXPECT_EQ(ids("{}", "The Cafés 世世 x"), (Ids{2, 5, 6, 9, 8, 8, 1, 3}));
  const auto tokenizer = load_tokenizer(folder_ / "vocab.txt");
  EXPECT_EQ(tokenizer->kind(), TokenizerKind::kWordPiece);
  EXPECT_EQ(tokenizer->encode_texts("the", "cafe").types, (Ids{0, 0, 0, 1, 1}));
  EXPECT_EQ(tokenizer->encode("[MASK]", ControlText::kAsTokens), Ids{4});
}

TEST_F(VocabularyFile, ConfigSetsNormalizerAndSpecialTokens) {
  EXPECT_EQ(ids(R"({"do_lower_case":false})", "Café"), (Ids{2, 7, 3}));
  EXPECT_EQ(ids(R"({"do_lower_case":false,"strip_accents":true})", "Café"), (Ids{2, 1, 3}));
  EXPECT_EQ(ids(R"({"tokenize_chinese_chars":false})", "世世"), (Ids{2, 1, 3}));
  EXPECT_EQ(ids(R"({"cls_token":"[MASK]"})", "the"), (Ids{4, 5, 3}));
  expect_words(message_of<DataError>([&] { ids(R"({"sep_token":"</s>"})", "the"); }),
               {"vocab.txt", "</s>", "sep_token"});
}

TEST_F(VocabularyFile, SavesFilesOfItsFolderOnly) {
  folder_.write("tokenizer_config.json", "{}");
  const TemporaryFolder saved;
  load_tokenizer(folder_.path())->save(saved.path());
  EXPECT_EQ(read_text(saved / "vocab.txt"), read_text(folder_ / "vocab.txt"));
  EXPECT_TRUE(std::filesystem::exists(saved / "tokenizer_config.json"));
  EXPECT_FALSE(std::filesystem::exists(saved / "tokenizer.json"));
}

TEST(EncoderTokenizer, RejectsDamagedModelsByPath) {
  const TemporaryFolder folder;
  const auto refusal = [&](const char* name, std::string_view from, std::string_view to) {
    std::string file = json::serialize(encoder_golden().at("tokenizers").at(name).at("json"));
    const std::size_t place = file.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    folder.write("tokenizer.json", file.replace(place, from.size(), to));
    return message_of<DataError>([&] { load_tokenizer(folder.path()); });
  };
  expect_words(refusal("bert", R"("unk_token":"[UNK]")", R"("unk_token":"?!")"),
               {"tokenizer.json", "model.unk_token", "?!"});
  expect_words(
      refusal("bert", R"("max_input_chars_per_word":100)", R"("max_input_chars_per_word":-1)"),
      {"model.max_input_chars_per_word", "-1"});
  expect_words(refusal("t5", R"(["<s>",)", R"(["<s>",1,)"), {"model.vocab[0]", "pair"});
  expect_words(refusal("t5", R"("unk_id":3)", R"("unk_id":31)"), {"model.unk_id", "31"});
  expect_words(refusal("t5", R"("precompiled_charsmap":")", R"("precompiled_charsmap":"?)"),
               {"normalizer.precompiled_charsmap", "base64"});
  expect_words(refusal("t5", R"("precompiled_charsmap":")", R"("precompiled_charsmap":"////)"),
               {"normalizer.precompiled_charsmap", "damaged"});
  expect_words(refusal("t5", R"("id":"B")", R"("id":"C")"), {"post_processor.pair", "C"});
}

/// Takes minutes if each character compares all tokens, or each unknown run is copied.
TEST(EncoderTokenizer, LongWordTakesLinearTime) {
  const TemporaryFolder folder;
  for (const char* name : {"t5", "bytes", "bert"}) {
    folder.write("tokenizer.json",
                 json::serialize(encoder_golden().at("tokenizers").at(name).at("json")));
    const auto tokenizer = load_tokenizer(folder.path());
    const std::string word(400'000, 'x'), unknown(400'000, 'q');
    EXPECT_GE(tokenizer->encode(word).size(), 1u);
    EXPECT_GE(tokenizer->encode(unknown).size(), 1u);
  }
}

}  // namespace
}  // namespace hybrid_trainer
