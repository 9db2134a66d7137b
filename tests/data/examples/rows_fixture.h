#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "src/data/examples/example_rows.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {

inline constexpr const char* kChat =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/// A model folder with the small golden tokenizer, and files of examples.
class RowsFixture : public ::testing::Test {
 protected:
  RowsFixture() { set_template(kChat); }
  void set_template(const std::string& source) {
    folder_.write("chat_template.jinja", source);
    chat_ = read_chat_files(folder_.path());
  }
  ExampleRows read(const std::string& lines, std::int64_t longest = 1000) const {
    return read_example_rows(folder_.write("examples.jsonl", lines), {.tokenizer = *tokenizer_,
                                                                      .chat = chat_,
                                                                      .longest = longest,
                                                                      .control = control_,
                                                                      .columns = columns_});
  }
  /// The row's text with the target tokens in brackets.
  std::string shown(const ExampleRow& row) const {
    std::string text;
    bool inside = false;
    for (std::size_t i = 0; i < row.tokens.size(); ++i) {
      if (row.is_target[i] != inside) text += inside ? "]" : "[";
      inside = row.is_target[i];
      text += tokenizer_->token_bytes(row.tokens[i]);
    }
    return text + (inside ? "]" : "");
  }
  std::string only_row(const std::string& line) const {
    const ExampleRows examples = read(line + "\n");
    EXPECT_EQ(examples.refused.size(), 0u) << examples.refused.front().reason;
    return examples.rows.empty() ? "" : shown(examples.rows.front());
  }
  std::string only_reason(const std::string& line, std::int64_t longest = 1000) const {
    const ExampleRows examples = read(line, longest);
    EXPECT_EQ(examples.rows.size(), 0u);
    return examples.refused.empty() ? "" : examples.refused.front().reason;
  }

  TemporaryFolder folder_;
  ChatFiles chat_;
  ControlText control_ = ControlText::kAsTokens;
  ColumnNames columns_;
  std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(HT_TEST_DATA_DIR "/bpe_small/tokenizer.json");
};

}  // namespace hybrid_trainer
