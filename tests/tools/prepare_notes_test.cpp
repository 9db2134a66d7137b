#include <gtest/gtest.h>

#include "tests/tools/hybrid_process.h"
#include "tests/trainer/temporary_folder.h"

namespace hybrid_trainer {
namespace {

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PrepareNotes, OverlongWordsAreSaidOnce) {
  const TemporaryFolder folder;
  std::string text = "some words and\r\n";
  for (int i = 0; i < 3; ++i) text += std::string(80'000, '=') + " and so on\r\n";
  write_text(folder / "text.txt", text);
  for (const char* tokenizer : {"bpe", "bytes"}) {
    const ProcessResult result = run_hybrid(
        folder.path(), {"prepare", "text.txt", "--output", tokenizer, "--tokenizer", tokenizer});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const bool has_words = tokenizer == std::string("bpe");
    EXPECT_EQ(times(result.errors, "were encoded in pieces"), has_words ? 1 : 0) << result.errors;
  }
}

}  // namespace
}  // namespace hybrid_trainer
