#include "hybrid_trainer/core/error.h"
#include "tests/tools/finetune_fixture.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr auto kUsage = static_cast<int>(ExitCode::kUsage);
constexpr auto kNoInput = static_cast<int>(ExitCode::kNoInput);

class ResumedFinetune : public Finetune {
 protected:
  ResumedFinetune() { fs::remove_all(trained_folder() / "adapter"); }
  void begin(std::vector<std::string> more) const {
    more.insert(more.end(), {"--set", "training.steps=2", "--set", "data.sequence_length=8"});
    const ProcessResult result = of_pairs(more);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  ProcessResult resumed(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--resume", "--run", "tuned", "--set", "training.steps=3"});
    return finetune(more);
  }
  /// Refused as bad usage, for a reason that has the words.
  void expect_refused(const std::vector<std::string>& more, const std::string& words) const {
    const ProcessResult result = resumed(more);
    EXPECT_EQ(result.exit_code, kUsage) << words << result.errors;
    EXPECT_NE(result.errors.find(words), std::string::npos) << result.errors;
  }
};

TEST_F(ResumedFinetune, KeepsItsMethod) {
  begin({"--method", "lora"});
  expect_refused({"--method", "full"}, "--method: got full, but the run trains lora");
  expect_refused({"--method", "qlora"}, "--method: got qlora, but the run trains lora");
  expect_refused({"--method", "lara"}, "did you mean lora");
  EXPECT_EQ(resumed({"--method", "lora"}).exit_code, 0);
  fs::remove_all(trained_folder() / "tuned");
  begin({"--method", "qlora"});
  expect_refused({"--method", "lora"}, "--method: got lora, but the run trains qlora");
  EXPECT_EQ(resumed({"--method", "qlora"}).exit_code, 0);
  fs::remove_all(trained_folder() / "tuned");
  begin({"--method", "lora", "--set", "lora.base=nf4"});
  EXPECT_EQ(resumed({"--method", "lora", "--set", "lora.base=nf4"}).exit_code, 0)
      << "as it was begun";
  fs::remove_all(trained_folder() / "tuned");
  begin({});
  expect_refused({"--method", "lora"}, "--method: got lora, but the run trains full");
}

TEST_F(ResumedFinetune, KeepsTheAdapterThatItBeganFrom) {
  begin({"--method", "lora"});
  expect_refused({"--adapter", "none"}, "--adapter: got none, but the run began without one");
  for (const char* name : {"adapter", "other"}) {
    fs::remove_all(trained_folder() / name);
    ASSERT_EQ(
        run_hybrid(trained_folder(), {"export", "tuned", "--output", name, "--adapter"}).exit_code,
        0);
  }
  fs::remove_all(trained_folder() / "tuned");
  begin({"--adapter", "adapter", "--set", "lora.dropout=0.1"});
  expect_refused({"--adapter", "other"}, "--adapter: got other, but the run began with ");
  const ProcessResult same = resumed({"--adapter", "./adapter"});
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  fs::rename(trained_folder() / "adapter", trained_folder() / "gone");
  const ProcessResult gone = resumed({"--set", "training.steps=4"});
  EXPECT_EQ(gone.exit_code, 0) << gone.errors;
  fs::remove_all(trained_folder() / "gone");
}

TEST_F(ResumedFinetune, KeepsTheModelThatItBeganWith) {
  begin({});
  expect_refused({"--model", "data"}, "began with ");
  const auto of_train = [](const std::string& model) {
    return run_hybrid(trained_folder(), {"train", "--resume", "--run", "tuned", "--init-from",
                                         model, "--set", "training.steps=3"});
  };
  const ProcessResult other = of_train("data");
  EXPECT_EQ(other.exit_code, kUsage) << other.errors;
  EXPECT_NE(other.errors.find("--init-from: got data, but the run began with "), std::string::npos)
      << other.errors;
  EXPECT_EQ(of_train("base").exit_code, 0);
  const ProcessResult none =
      run_hybrid(trained_folder(), {"train", "--resume", "--run", "run", "--init-from", "base"});
  EXPECT_EQ(none.exit_code, kUsage) << none.errors;
  EXPECT_NE(none.errors.find("--init-from: got base, but the run began without one"),
            std::string::npos)
      << none.errors;
}

TEST_F(ResumedFinetune, KeepsWhatItIsMeasuredOn) {
  write_text(trained_folder() / "measured.jsonl", "{\"text\": \"Line 1\"}\n");
  write_text(trained_folder() / "other.jsonl", "{\"text\": \"Line 2\"}\n");
  begin({"--validation", "measured.jsonl"});
  const ProcessResult other = resumed({"--validation", "other.jsonl"});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kData)) << other.errors;
  EXPECT_EQ(resumed({"--validation", "measured.jsonl"}).exit_code, 0);
}

TEST_F(ResumedFinetune, TellsAFileThatHasChangedFromAnotherOne) {
  begin({});
  const std::string before = read_text(trained_folder() / "pairs.jsonl");
  write_text(trained_folder() / "another.jsonl", "{\"text\": \"Lin\"}\n");
  const ProcessResult other = resumed({"--data", "another.jsonl"});
  EXPECT_EQ(other.exit_code, 65) << other.errors;
  EXPECT_NE(other.errors.find("give --data the run's own"), std::string::npos) << other.errors;
  write_text(trained_folder() / "pairs.jsonl", before + "{\"text\": \"Lin\"}\n");
  const ProcessResult changed = resumed({});
  EXPECT_EQ(changed.exit_code, 65) << changed.errors;
  EXPECT_NE(changed.errors.find("pairs.jsonl has changed since the run began"), std::string::npos)
      << changed.errors;
  EXPECT_NE(changed.errors.find("hybrid export"), std::string::npos) << changed.errors;
  write_text(trained_folder() / "pairs.jsonl", before);
  EXPECT_EQ(resumed({}).exit_code, 0);
}

TEST_F(ResumedFinetune, SaysHowToGiveTheNewPlaceOfFilesThatMoved) {
  write_text(trained_folder() / "measured.jsonl", "{\"text\": \"Line 1\"}\n");
  begin({"--validation", "measured.jsonl"});
  const fs::path moved = trained_folder() / "moved";
  fs::create_directories(moved);
  const auto expect_way_out = [&](const ProcessResult& result, const std::string& words) {
    EXPECT_EQ(result.exit_code, kNoInput) << result.errors;
    EXPECT_NE(result.errors.find(words), std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.find("prepare"), std::string::npos) << result.errors;
  };
  fs::rename(trained_folder() / "measured.jsonl", moved / "measured.jsonl");
  expect_way_out(resumed({}), "finetune --resume --run tuned --validation ");
  fs::rename(trained_folder() / "pairs.jsonl", moved / "pairs.jsonl");
  expect_way_out(resumed({}), "finetune --resume --run tuned --data ");
  expect_way_out(finetune({"--resume", "--run", "tuned", "--epochs", "9"}),
                 "finetune --resume --run tuned --data ");
  expect_way_out(resumed({"--data", "none.jsonl", "--validation", "moved/measured.jsonl"}),
                 "none.jsonl");
  expect_way_out(run_hybrid(trained_folder(), {"train", "--resume", "--run", "tuned"}),
                 "train --resume --run tuned --data ");
  expect_way_out(run_hybrid(trained_folder(), {"eval", "tuned"}), "eval tuned --data ");
  const ProcessResult found =
      resumed({"--data", "moved/pairs.jsonl", "--validation", "moved/measured.jsonl"});
  EXPECT_EQ(found.exit_code, 0) << found.errors;
  const ProcessResult again = resumed({"--set", "training.steps=4"});
  EXPECT_EQ(again.exit_code, 0) << "remembered: " << again.errors;
}

}  // namespace
}  // namespace hybrid_trainer
