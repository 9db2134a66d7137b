#include "src/data/audio/word_errors.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>

namespace hybrid_trainer {
namespace {

boost::json::value golden_errors() {
  std::ifstream file(std::string(HT_TEST_DATA_DIR) + "/word_errors.json");
  return boost::json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(WordErrors, NormalizationMatchesWhisper) {
  const auto golden = golden_errors();
  ASSERT_GE(golden.at("normal").as_array().size(), 10u);
  for (const auto& one : golden.at("normal").as_array())
    EXPECT_EQ(normalized_words(one.at(0).as_string()), std::string(one.at(1).as_string()))
        << one.at(0).as_string();
  EXPECT_EQ(normalized_words("a\xFF z"), "a z") << "invalid UTF-8 separates words";
}

/// In these scripts vowels are combining marks, at which Whisper's normalizer splits words.
TEST(WordErrors, CombiningMarksStayInWords) {
  const char* texts[] = {"मैं हिन्दी बोलता हूँ।", "நான் தமிழ் பேசுகிறேன்", "ഞാൻ മലയാളം പറയുന്നു",
                         "আমি বাংলা বলি",    "สวัสดี ครับ",           "مَرْحَبًا بِكَ"};
  const std::int64_t words[] = {4, 3, 3, 3, 2, 2};
  for (std::size_t i = 0; i < std::size(texts); ++i) {
    EXPECT_EQ(word_errors(texts[i], "").words, words[i]) << texts[i];
    EXPECT_EQ(word_errors(texts[i], texts[i]).errors(), 0);
  }
  EXPECT_EQ(normalized_words("\u2764\uFE0F love"), "love")
      << "a mark after a symbol does not belong to a word";
}

TEST(WordErrors, CountsMatchJiwer) {
  const auto golden = golden_errors();
  ASSERT_GE(golden.at("errors").as_array().size(), 200u);
  for (const auto& one : golden.at("errors").as_array()) {
    const std::string said(one.at("said").as_string()), heard(one.at("heard").as_string());
    const WordErrors errors = word_errors(said, heard);
    const auto& wanted = one.at("errors").as_array();
    EXPECT_EQ(errors.substitutions, wanted[0].as_int64()) << said << " / " << heard;
    EXPECT_EQ(errors.deletions, wanted[1].as_int64()) << said << " / " << heard;
    EXPECT_EQ(errors.insertions, wanted[2].as_int64()) << said << " / " << heard;
  }
}

TEST(WordErrors, CountsAccumulateIntoRate) {
  WordErrors all = word_errors("one two three four", "One, two!");
  EXPECT_EQ(all.words, 4);
  EXPECT_EQ(all.deletions, 2);
  EXPECT_EQ(all.rate(), 0.5);
  all += word_errors("go", "stop it");
  EXPECT_EQ(all.words, 5);
  EXPECT_EQ(all.errors(), 4);
  EXPECT_EQ(all.rate(), 0.8);
  EXPECT_EQ(word_errors("", "").rate(), 0);
  EXPECT_EQ(word_errors("...", "something").rate(), 1);
  EXPECT_GT(word_errors("a", "b c d").rate(), 1);
}

TEST(WordErrors, TextNamesEachKind) {
  EXPECT_EQ(word_errors("a b", "c").text(), "1 substitution, 1 deletion, 0 insertions");
  EXPECT_EQ(word_errors("a b", "c d e").text(), "2 substitutions, 0 deletions, 1 insertion");
}

}  // namespace
}  // namespace hybrid_trainer
