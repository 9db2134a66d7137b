#include <gtest/gtest.h>

#include "hybrid_trainer/data/token_dataset.h"
#include "src/data/text/bpe_training.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PrepareNotes, TextThatMayBeCutNowhereIsSaidOnce) {
  const TemporaryFolder folder;
  write_text(folder / "text.txt", std::string(24 << 20, '='));
  BpeTrainer(257).train().tokenizer->save(folder.path());
  for (const char* tokenizer : {".", "bytes"}) {
    const bool has_words = tokenizer == std::string(".");
    const ProcessResult result = run_hybrid(
        folder.path(),
        {"prepare", "text.txt", "--output", has_words ? "a" : "b", "--tokenizer", tokenizer});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(times(result.errors, "was encoded in pieces"), has_words ? 1 : 0) << result.errors;
  }
}

TEST(PrepareNotes, ControlTokensAreTextUnlessAskedFor) {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 4000) text += "a story<|endoftext|>\n";
  write_text(folder / "text.txt", text);
  BpeTrainer(257).train().tokenizer->save(folder.path());
  const auto tokens = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"prepare", "text.txt", "--tokenizer", "."});
    EXPECT_EQ(run_hybrid(folder.path(), options).exit_code, 0);
    return read_data_info(folder / options.back())->train_tokens;
  };
  const std::int64_t as_text = tokens({"--output", "text"});
  const std::int64_t as_tokens = tokens({"--control-tokens", "--output", "tokens"});
  EXPECT_GT(as_text, 2 * as_tokens);
}

}  // namespace
}  // namespace hybrid_trainer
