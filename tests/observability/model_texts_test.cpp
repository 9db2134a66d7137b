#include "hybrid_trainer/observability/model_texts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

class ComparedAnswers : public testing::Folder {};

TEST_F(ComparedAnswers, RoundTripThroughFile) {
  const std::string file = ComparedAnswers::file("answers.json").string();
  EXPECT_TRUE(read_answers(file).empty());
  write_answers(file, {{"a \"prompt\"\n", "wanted é", std::nullopt, "after"},
                       {"b", "", "before", "", false}});
  const std::vector<ComparedAnswer> answers = read_answers(file);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].prompt, "a \"prompt\"\n");
  EXPECT_EQ(answers[0].wanted, "wanted é");
  EXPECT_FALSE(answers[0].before);
  EXPECT_TRUE(answers[0].held_out);
  EXPECT_EQ(answers[1].before, "before");
  EXPECT_FALSE(answers[1].held_out);
  std::ofstream(file) << "{\"answers\": [1";
  EXPECT_TRUE(read_answers(file).empty());
}

TEST_F(ComparedAnswers, AreTruncatedToOneLineEach) {
  std::string umlauts;
  for (int i = 0; i < 200; ++i) umlauts += "ä";
  const std::string text = answers_text({{"x" + umlauts, "one\ntwo", std::nullopt, "x" + umlauts}});
  EXPECT_NE(text.find("wanted  one ⏎ two\n"), text.npos) << text;
  EXPECT_EQ(text.find("before"), text.npos);
  EXPECT_NE(text.find("prompt  …ä"), text.npos) << text;
  EXPECT_TRUE(text.ends_with("ä…")) << text;
}

TEST_F(ComparedAnswers, ShowEmptyAnswersAndTrainingPrompts) {
  const std::string text = answers_text({{"a", "", "", "", false}});
  EXPECT_EQ(text,
            "answers to prompts of the training examples:\n  prompt  a\n  before  (nothing)\n"
            "  after   (nothing)");
}

}  // namespace
}  // namespace hybrid_trainer
