#include "src/core/messages.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace hybrid_trainer {
namespace {

/// The words that a shell parses from a command line, each in brackets.
std::string words_in_shell(const std::string& line) {
  FILE* const shell = popen(
      ("exec 2>/dev/null; bash -c '. /dev/stdin' <<'EOS'\nprintf '[%s]' " + line + "\nEOS").c_str(),
      "r");
  std::string text(4096, '\0');
  text.resize(fread(text.data(), 1, text.size(), shell));
  pclose(shell);
  return text;
}

TEST(ShellWord, ShellParsesResultAsOneWord) {
  EXPECT_EQ(shell_word("runs/a-b_c.1"), "runs/a-b_c.1");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word("it's $5"), "'it'\\''s $5'");
  for (const std::string word :
       {"a b", "it's", "$(touch x)", "`id`", "a;b&c|d", "x\ny", "\x1b[31m'\\", "*?[a]", "~", "#a",
        "\"q\"", "a\tb", "!x", "<>", "caf\xC3\xA9"})
    EXPECT_EQ(words_in_shell(shell_word(word)), "[" + word + "]") << shell_word(word);
}

TEST(ShellWord, PathIsNotParsedAsOption) {
  EXPECT_EQ(shell_path("-rf"), "./-rf");
  EXPECT_EQ(shell_path("-a b"), "'./-a b'");
  EXPECT_EQ(shell_path("/a/-b"), "/a/-b");
}

TEST(ShellWord, EscapesControlCharacters) {
  EXPECT_EQ(shell_word("a\n\x1b[2J"), "$'a\\x0a\\x1b[2J'");
}

}  // namespace
}  // namespace hybrid_trainer
