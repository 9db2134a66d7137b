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

TEST(PrepareNotes, FilesGivenAgainAreSaidOnce) {
  const TemporaryFolder folder;
  write_text(folder / "a.txt", std::string(1000, 'a'));
  write_text(folder / "b.txt", std::string(1000, 'b'));
  const ProcessResult result =
      run_hybrid(folder.path(), {"prepare", "a.txt", "./a.txt", "b.txt", "a.txt", "--output",
                                 "data", "--tokenizer", "bytes"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(times(result.errors, "2 files were given again"), 1) << result.errors;
  EXPECT_NE(result.errors.find("2 documents"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace hybrid_trainer
