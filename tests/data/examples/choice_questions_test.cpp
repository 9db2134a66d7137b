#include "src/data/examples/choice_questions.h"

#include "hybrid_trainer/core/error.h"
#include "tests/data/examples/rows_fixture.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class ChoiceQuestionsTest : public RowsFixture {
 protected:
  ChoiceQuestions questions(const std::string& lines, std::int64_t context = 1000) const {
    return read_choice_questions(folder_.write("questions.jsonl", lines),
                                 {.tokenizer = *tokenizer_,
                                  .chat = chat_,
                                  .context = context,
                                  .vocabulary = tokenizer_->vocabulary_size()});
  }
  ChoiceQuestion only(const std::string& line) const {
    return questions(line + "\n").questions.front();
  }
  std::string refusal(const std::string& lines, std::int64_t context = 1000) const {
    return message_of<DataError>([&] { questions(lines, context); });
  }
  std::string text_of(const std::vector<std::int32_t>& tokens) const {
    return tokenizer_->decode(tokens);
  }
};

TEST_F(ChoiceQuestionsTest, RejectsTemplateThatWritesNothing) {
  set_template("{# nothing #}");
  expect_words(
      refusal(
          R"({"prompt": [{"role": "user", "content": "a"}], "choices": ["b", "c"], "answer": 0})"),
      {"produces no text for"});
}

TEST_F(ChoiceQuestionsTest, TokenizesPromptAndChoices) {
  const ChoiceQuestion one =
      only(R"({"prompt": "The cat", "choices": [" sat", " flew away"], "answer": 1})");
  EXPECT_EQ(one.line, 1);
  EXPECT_EQ(one.answer, 1u);
  EXPECT_EQ(text_of(one.prompt), "The cat");
  ASSERT_EQ(one.choices.size(), 2u);
  EXPECT_EQ(text_of(one.choices[0].tokens), " sat");
  EXPECT_EQ(text_of(one.choices[1].tokens), " flew away");
  EXPECT_EQ(one.choices[0].bytes, 4u);
  EXPECT_EQ(one.choices[1].bytes, 10u);
}

TEST_F(ChoiceQuestionsTest, AllChoicesShareSamePromptTokens) {
  const ChoiceQuestion one = only(R"({"prompt": "of the ", "choices": ["the", "7"], "answer": 0})");
  for (const auto& choice : one.choices) {
    std::vector<std::int32_t> whole = one.prompt;
    whole.insert(whole.end(), choice.tokens.begin(), choice.tokens.end());
    EXPECT_FALSE(choice.tokens.empty());
    EXPECT_EQ(whole, tokenizer_->encode(text_of(whole))) << "as in the encoding of the entire text";
  }
  EXPECT_EQ(one.choices[0].bytes, 3u) << "counts only the bytes of the choice";
}

TEST_F(ChoiceQuestionsTest, RendersMessagePromptWithChatTemplate) {
  const ChoiceQuestion one = only(
      R"({"prompt": [{"role": "user", "content": "Hi"}], "choices": ["Yes", "No"], "answer": "B"})");
  EXPECT_EQ(text_of(one.prompt), "<user>Hi<|endoftext|><assistant>");
  EXPECT_EQ(text_of(one.choices[1].tokens), "No");
  EXPECT_EQ(one.answer, 1u);
}

TEST_F(ChoiceQuestionsTest, EmptyPromptBecomesEndOfTextToken) {
  const ChoiceQuestion one = only(R"({"prompt": "", "choices": ["Yes", "No"], "answer": 0})");
  EXPECT_EQ(one.prompt, (std::vector<std::int32_t>{*tokenizer_->end_of_text()}));
  EXPECT_EQ(text_of(one.choices[0].tokens), "Yes");
}

TEST_F(ChoiceQuestionsTest, AcceptsAnswerAsIndexLetterOrText) {
  const auto answer = [&](const std::string& value) {
    return only(concat(R"({"prompt": "x", "choices": [" red", " b", " blue"], "answer": )", value,
                       "}"))
        .answer;
  };
  EXPECT_EQ(answer("2"), 2u);
  EXPECT_EQ(answer("\"C\""), 2u);
  EXPECT_EQ(answer("\"c\""), 2u);
  EXPECT_EQ(answer("\" blue\""), 2u);
  EXPECT_EQ(only(R"({"prompt": "x", "choices": ["A", "B"], "answer": "B"})").answer, 1u)
      << "letter and text agree";
}

TEST_F(ChoiceQuestionsTest, CountsArrayElementsAsLines) {
  const ChoiceQuestions read = questions(
      R"([{"prompt": "x", "choices": [" a", " b"], "answer": 0},
          {"prompt": "y", "choices": ["a", "b"], "answer": 1}])");
  ASSERT_EQ(read.questions.size(), 2u);
  EXPECT_EQ(read.questions[1].line, 2);
  EXPECT_EQ(read.joined_words, 1);
}

TEST_F(ChoiceQuestionsTest, InvalidLinesAreReportedWithReason) {
  const std::string good = R"({"prompt": "x", "choices": [" a", " b"], "answer": 0})";
  const auto expect = [&](const std::string& line, const std::string& reason) {
    const std::string message = refusal(good + "\n" + line + "\n" + good);
    EXPECT_TRUE(contains(message, "questions.jsonl, line 2: ")) << message;
    EXPECT_TRUE(contains(message, reason)) << message;
  };
  expect("[1]", "it is not a JSON object");
  expect("{\"prompt\": ", "the line");
  expect(R"({"choices": ["a", "b"], "answer": 0})", R"(it has no "prompt")");
  expect(R"({"prompt": "x", "answer": 0})", R"(it has no "choices")");
  expect(R"({"prompt": "x", "choices": ["a", "b"]})", R"(it has no "answer")");
  expect(R"({"prompt": 3, "choices": ["a", "b"], "answer": 0})", "is neither a string nor a list");
  expect(R"({"prompt": "x", "choices": "ab", "answer": 0})", "is not a list");
  expect(R"({"prompt": "x", "choices": ["a"], "answer": 0})", "it has 1 choices");
  expect(R"({"prompt": "x", "choices": ["a", 2], "answer": 0})", "choice 2 is not a string");
  expect(R"({"prompt": "x", "choices": ["a", ""], "answer": 0})", "choice 2 is empty");
  expect(R"({"prompt": "x", "choices": ["a", "b", "a"], "answer": 0})",
         "choices 1 and 3 have the same text");
  expect(R"({"prompt": "x", "choices": ["a", "b"], "answer": 2})", "want an index from 0 to 1");
  expect(R"({"prompt": "x", "choices": ["a", "b"], "answer": -1})", "want an index from 0 to 1");
  expect(R"({"prompt": "x", "choices": ["a", "b"], "answer": 0.0})", "want an index from 0 to 1");
  expect(R"({"prompt": "x", "choices": ["a", "b"], "answer": true})", "want an index from 0 to 1");
  expect(R"({"prompt": "x", "choices": ["a", "b"], "answer": "1"})", "want an index from 0 to 1");
  expect(R"({"prompt": "x", "choices": ["a", "b"], "answer": "C"})", "want an index from 0 to 1");
  expect(R"({"prompt": "x", "choices": ["B", "A"], "answer": "B"})",
         "the text of choice 1 and the letter of choice 2");
}

TEST_F(ChoiceQuestionsTest, ErrorShowsFirstFiveInvalidLines) {
  std::string lines;
  for (int i = 0; i < 7; ++i) lines += "{}\n";
  const std::string message = refusal(lines);
  EXPECT_TRUE(contains(message, "line 5: ")) << message;
  EXPECT_FALSE(contains(message, "line 6: ")) << message;
  EXPECT_TRUE(contains(message, "2 more lines cannot be used")) << message;
  EXPECT_TRUE(contains(refusal("\n"), "contains no questions"));
}

TEST_F(ChoiceQuestionsTest, RejectsQuestionsLongerThanContext) {
  const std::string line =
      R"({"prompt": "x", "choices": [" a", " the of the of the of the of the"], "answer": 0})";
  EXPECT_NO_THROW(questions(line, 40));
  const std::string message = refusal(line, 4);
  EXPECT_TRUE(contains(message, "line 1: choice 2 with its prompt has ")) << message;
  EXPECT_TRUE(contains(message, "the model's context is 4")) << message;
}

}  // namespace
}  // namespace hybrid_trainer
