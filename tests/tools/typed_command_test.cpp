#include "src/tools/typed_command.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(TypedCommand, IsPastedIntoAShellAsItIs) {
  EXPECT_EQ(shell_word("runs/a-b_c.1"), "runs/a-b_c.1");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word("it's $5"), "'it'\\''s $5'");
  const std::string typed = as_typed("train", {"--run", "my run", "--set", "stretches=[]"});
  EXPECT_TRUE(typed.ends_with("test_tools train --run 'my run' --set 'stretches=[]'")) << typed;
}

TEST(TypedCommand, GoesOnWithARunAndStartsItAgain) {
  const std::string alone = resume_command("train", "runs/x", {});
  EXPECT_TRUE(alone.ends_with(" train --resume --run runs/x")) << alone;
  EXPECT_TRUE(resume_command("train", "x", {}, "to").ends_with(" --resume --run x --export to"));
  const std::string ranks = resume_command("finetune", "runs/x", 2);
  EXPECT_TRUE(ranks.ends_with(" finetune --resume --run runs/x --ranks 2")) << ranks;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--run", "x"}, {"--run", "x", "--resume"}}) {
    const std::string again = restart_command("train", arguments);
    EXPECT_TRUE(again.ends_with(" train --run x --resume")) << again;
  }
}

}  // namespace
}  // namespace hybrid_trainer
