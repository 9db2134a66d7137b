#include "src/tools/train/typed_command.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/core/messages.h"
#include "src/files/text.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

TEST(TypedCommand, IsQuotedForShell) {
  const std::string typed = as_typed("train", {"--run", "my run", "--set", "stages=[]"});
  EXPECT_TRUE(typed.ends_with("test_tools train --run 'my run' --set 'stages=[]'")) << typed;
}

/// Names come from data, and a user may paste a command from a message into a shell.
TEST(SuggestedCommands, QuoteNamesForShell) {
  const std::string odd = "it's; touch $(x)";
  const auto refusal = [&](std::string_view begin) {
    return message_of<DataError>([&] { refuse_container(begin, odd); });
  };
  const std::pair<std::string, std::string> cases[] = {
      {refusal("\x1F\x8B"), "gunzip --keep " + shell_path(odd)},
      {refusal("GGUF"), "hybrid export " + shell_path(odd) + " --output"},
      {refusal(std::string_view("\xFF\xFE\0\0", 4)),
       "UTF-8 " + shell_path(odd) + " > " + shell_path(odd + ".txt")},
      {download_hint("owner/" + odd),
       "hf download " + shell_path("owner/" + odd) + " --local-dir " + shell_path(odd)},
      {message_of<MissingInput>([&] { read_data_info(odd); }),
       "hybrid prepare TEXT --output " + shell_path(odd)},
  };
  for (const auto& [message, command] : cases)
    EXPECT_TRUE(contains(message, command.c_str())) << message;
}

TEST(TypedCommand, ResumesAndRestartsRun) {
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
