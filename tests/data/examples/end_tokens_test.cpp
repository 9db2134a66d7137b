#include "src/data/examples/example_rows.h"

#include <gtest/gtest.h>

#include "tests/data/examples/rows_fixture.h"

namespace hybrid_trainer {
namespace {

class EndTokensTest : public RowsFixture {
 protected:
  std::vector<std::int32_t> ends(const std::string& lines) const {
    return end_tokens_of(read(lines).rows, *tokenizer_);
  }
  const std::vector<std::int32_t> end_{tokenizer_->encode("<|endoftext|>", ControlText::kAsTokens)};
  const std::string chat_line_ = R"({"messages": [{"role": "user", "content": "a"}, )"
                                 R"({"role": "assistant", "content": "b"}]})";
};

TEST_F(EndTokensTest, FindsTokenThatEndsAnswers) {
  EXPECT_EQ(ends(chat_line_), end_);
  set_template(std::string(kChat) + "\n\n");
  EXPECT_EQ(ends(chat_line_), end_);
  EXPECT_EQ(ends(R"({"text": "a"})"), end_);
}

TEST_F(EndTokensTest, EmptyIfTemplateEndsWithText) {
  set_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  EXPECT_TRUE(ends(chat_line_).empty());
}

TEST_F(EndTokensTest, ReportsChatsThatEndWithTextOnce) {
  const auto notes = [&](const std::string& source, const std::string& lines) {
    set_template(source);
    return read(lines).notes();
  };
  const std::string loop = "{% for m in messages %}{{ m.role }}: {{ m.content }}";
  const auto ends_with_text = notes(loop + "\n\nUser:{% endfor %}", chat_line_ + "\n" + chat_line_);
  ASSERT_EQ(ends_with_text.size(), 1u);
  expect_words(ends_with_text[0],
               {"2 chats end with \"\\n\\nUser:\"", "not a special token", "eos_token", "--stop"});
  const auto ends_with_nothing = notes(loop + "\n{% endfor %}", chat_line_);
  ASSERT_EQ(ends_with_nothing.size(), 1u);
  expect_words(ends_with_nothing[0], {"1 chat ends", "no token after it", "eos_token"});
  // The end-of-text token follows, or another reason makes the check impossible.
  EXPECT_TRUE(notes(loop + "<|endoftext|>\n{% endfor %}", chat_line_).empty());
  EXPECT_TRUE(notes(loop + "<|endoftext|> x{% endfor %}", chat_line_).empty());
  EXPECT_TRUE(notes(loop + "{% endfor %}",
                    R"({"messages": [{"role": "assistant", "content": "b"}, )"
                    R"({"role": "user", "content": "a"}]})")
                  .empty());
}

TEST_F(EndTokensTest, ExcludesTokenThatOccursInsideAnswer) {
  set_template(
      "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}<|endoftext|>"
      "{% if m.reasoning_content %}{{ m.content }}<|endoftext|>{% endif %}{% endfor %}");
  EXPECT_EQ(ends(chat_line_), end_);
  EXPECT_TRUE(ends(chat_line_ + "\n" +
                   R"({"messages": [{"role": "assistant", "content": "b", "reasoning": "r"}]})")
                  .empty());
}

TEST_F(EndTokensTest, FindsEndTokenOfTruncatedRow) {
  const ExampleRows examples = read(R"({"prompt": "0", "completion": "1\n2\n3\n4"})", 4);
  EXPECT_EQ(end_tokens_of(examples.rows, *tokenizer_), end_);
}

}  // namespace
}  // namespace hybrid_trainer
