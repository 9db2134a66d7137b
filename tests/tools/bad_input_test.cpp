#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "hybrid_trainer/core/error.h"
#include "tests/tools/hybrid_process.h"
#include "tests/trainer/temporary_folder.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr long kMostLines = 12;

/// The call fails with the code, and its message is short and holds every word. Nothing stands on
/// standard output.
void expect_refusal(const std::vector<std::string>& arguments, ExitCode code,
                    const std::vector<std::string>& words) {
  const ProcessResult result = run_hybrid(trained_folder(), arguments);
  std::string call;
  for (const std::string& argument : arguments) call += " " + argument;
  EXPECT_EQ(result.exit_code, static_cast<int>(code)) << call << "\n" << result.errors;
  EXPECT_EQ(result.output, "") << call;
  EXPECT_LE(std::count(result.errors.begin(), result.errors.end(), '\n'), kMostLines) << call;
  for (const std::string& word : words) {
    EXPECT_NE(result.errors.find(word), std::string::npos)
        << call << ": no \"" << word << "\" in " << result.errors;
  }
}

void expect_config_error(const std::vector<std::string>& settings,
                         const std::vector<std::string>& words) {
  std::vector<std::string> arguments{"train", "--preset", "gpt2-124m", "--data",
                                     "data",  "--run",    "new"};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  expect_refusal(arguments, ExitCode::kConfig, words);
  EXPECT_FALSE(fs::exists(trained_folder() / "new"));
}

TEST(BadInput, CommandsAndOptionsAreNamedWithTheNearest) {
  expect_refusal({}, ExitCode::kUsage, {"--help"});
  expect_refusal({"smaple"}, ExitCode::kUsage, {"smaple", "sample"});
  expect_refusal({"sample", "run", "--promt", "a"}, ExitCode::kUsage, {"--promt", "--prompt"});
  expect_refusal({"train", "--preset", "tiny", "--run", "new"}, ExitCode::kUsage,
                 {"--data", "missing"});
  expect_refusal({"eval"}, ExitCode::kUsage, {"RUN", "missing"});
  expect_refusal({"eval", "run", "more"}, ExitCode::kUsage, {"more"});
  expect_refusal({"sample", "run", "--prompt", "a", "--tokens", "ten"}, ExitCode::kUsage,
                 {"--tokens", "ten"});
  expect_refusal({"config", "--schema=1"}, ExitCode::kUsage, {"--schema"});
  expect_refusal({"finetune"}, ExitCode::kUsage, {"options are missing", "--model", "--data"});
  expect_refusal({"completion", "tcsh"}, ExitCode::kUsage, {"tcsh", "want one of bash, zsh, fish"});
  EXPECT_EQ(run_hybrid(trained_folder(), {"finetune", "-h"}).exit_code, 0);
}

TEST(BadInput, OutputsThatCannotBeMadeAreRefused) {
  expect_refusal(
      {"train", "--preset", "tiny", "--data", "data", "--run", "new", "--export", "out.gguf"},
      ExitCode::kUsage, {"out.gguf", "hybrid export RUN"});
  expect_refusal({"export", "run", "--output", "text.txt/out"}, ExitCode::kCannotCreate,
                 {"cannot be made", "text.txt is no folder"});
  expect_refusal(
      {"train", "--preset", "tiny", "--data", "data", "--run", "new", "--export", "text.txt/out"},
      ExitCode::kCannotCreate, {"text.txt is no folder"});
  EXPECT_FALSE(fs::exists(trained_folder() / "new"));
  const std::vector<std::vector<std::string>> commands{
      {"inspect", "run", "--tensorboard"},
      {"export", "run", "--output"},
      {"prepare", "text.txt", "--tokenizer", "bytes", "--output"},
      {"train", "--preset", "tiny", "--data", "data", "--run"},
      {"man", "train", "--output"}};
  for (const std::string place : {"/proc/nowhere/out", "text.txt/out"}) {
    for (std::vector<std::string> command : commands) {
      command.push_back(place);
      expect_refusal(command, ExitCode::kCannotCreate, {place.substr(0, place.rfind('/'))});
    }
  }
}

TEST(BadInput, TextIsPreparedFirst) {
  expect_refusal({"train", "--preset", "tiny", "--data", "text.txt", "--run", "new"},
                 ExitCode::kConfig,
                 {"text.txt is text", "hybrid prepare text.txt --output text-data"});
  EXPECT_FALSE(fs::exists(trained_folder() / "new"));
}

TEST(BadInput, WhatWouldChangeNothingIsToldOnce) {
  const ProcessResult result =
      run_hybrid(trained_folder(),
                 {"train", "--preset", "tiny", "--data", "data", "--run", "inert", "--set",
                  "training.steps=2", "--set", "lora.alpha=3", "--set",
                  "phases.max_predict_steps=0", "--set", "phases.skip_backward.trial_share=0.5"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  for (const char* text :
       {"warning: lora.alpha is set, but has no effect here: lora.rank is 0",
        "warning: phases.skip_backward.trial_share is set, but has no effect here: "}) {
    const auto at = result.errors.find(text);
    ASSERT_NE(at, std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.find(text, at + 1), std::string::npos) << result.errors;
  }
}

TEST(BadInput, RanksAreChecked) {
  const std::vector<std::string> train{"train", "--preset", "tiny", "--data",
                                       "data",  "--run",    "new",  "--ranks"};
  const auto with = [&](const char* ranks) {
    std::vector<std::string> arguments = train;
    arguments.emplace_back(ranks);
    return arguments;
  };
  expect_refusal(with("-1"), ExitCode::kUsage, {"--ranks", "-1"});
  expect_refusal(with("some"), ExitCode::kUsage, {"--ranks", "some"});
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  expect_refusal(with("2"), ExitCode::kUsage, {"mpirun", "OMPI_COMM_WORLD_SIZE"});
  unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_FALSE(fs::exists(trained_folder() / "new"));
}

TEST(BadInput, SamplingSettingsAreChecked) {
  expect_refusal({"sample", "run", "--prompt", "a", "--tokens", "-1"}, ExitCode::kUsage,
                 {"tokens", "-1"});
  expect_refusal({"sample", "run", "--prompt", "a", "--tokens", "1", "--temperature", "nan",
                  "--top-p", "2", "--min-p", "-1"},
                 ExitCode::kUsage, {"temperature", "top-p", "min-p"});
  expect_refusal({"sample", "run", "--prompt", "a", "--tokens", "1", "--seed", "-3"},
                 ExitCode::kUsage, {"seed", "-3"});
}

TEST(BadInput, ConfigKeysAreNamedWithPathAndNearest) {
  expect_config_error({"phases.warmup_step=3"}, {"phases.warmup_step", "warmup_steps"});
  expect_config_error(
      {"phases.skip_backward.confidence_threshold=1.5", "optimizer.learning_rate=-1"},
      {"phases.skip_backward.confidence_threshold", "1.5", "optimizer.learning_rate", "-1"});
  expect_config_error({"training.steps=many"}, {"training.steps", "many"});
  expect_config_error({"optimizer.learning_rate=nan"}, {"optimizer.learning_rate", "nan"});
  expect_refusal({"config", "--set", "training.steps"}, ExitCode::kUsage, {"KEY=VALUE"});
  expect_refusal({"config", "--preset", "gpt2-124"}, ExitCode::kConfig, {"gpt2-124m"});
}

TEST(BadInput, TwoBudgetsOfTheDeviceAreNamed) {
  expect_refusal({"config", "--set", "memory.device_budget=3MB", "--max-device-memory", "4MB"},
                 ExitCode::kConfig, {"--max-device-memory", "4MB", "3MB"});
}

TEST(BadInput, KeyOfAnotherGroupNamesItsPlace) {
  expect_config_error({"phases.trial_share=1"}, {"did you mean phases.skip_backward.trial_share?"});
}

TEST(BadInput, ConfigFilesAreNamed) {
  write_text(trained_folder() / "cut.json", "{\"training\": {\"steps\": 5,");
  write_text(trained_folder() / "twice.json", "{\"training\": {\"steps\": 5, \"steps\": 6}}");
  write_text(trained_folder() / "array.json", "[1]");
  expect_refusal({"config", "--config", "cut.json"}, ExitCode::kConfig, {"cut.json"});
  expect_refusal({"config", "--config", "twice.json"}, ExitCode::kConfig,
                 {"twice.json", "training.steps"});
  expect_refusal({"config", "--config", "array.json"}, ExitCode::kConfig, {"array.json"});
  expect_refusal({"config", "--config", "nowhere.json"}, ExitCode::kNoInput, {"nowhere.json"});
  expect_refusal({"config", "--config", "cut.json", "--preset", "tiny"}, ExitCode::kUsage,
                 {"--preset", "--config"});
}

TEST(BadInput, TextAndTokenizersAreNamed) {
  write_text(trained_folder() / "empty.txt", "");
  write_text(trained_folder() / "short.txt", "ab");
  expect_refusal({"prepare", "nowhere.txt", "--output", "made"}, ExitCode::kNoInput,
                 {"nowhere.txt"});
  expect_refusal({"prepare", "empty.txt", "--output", "made"}, ExitCode::kData, {"empty"});
  expect_refusal({"prepare", "short.txt", "--output", "made", "--tokenizer", "bytes"},
                 ExitCode::kData, {"short"});
  expect_refusal({"prepare", "text.txt", "--output", "made", "--tokenizer", "nosuch"},
                 ExitCode::kUsage, {"tokenizer"});
  expect_refusal({"prepare", "text.txt", "--output", "made", "--vocab-size", "3"}, ExitCode::kUsage,
                 {"vocab"});
  expect_refusal({"prepare", "text.txt", "--output", "data"}, ExitCode::kCannotCreate, {"data"});
  EXPECT_FALSE(fs::exists(trained_folder() / "made"));
}

TEST(BadInput, RunsAndFoldersAreNamed) {
  for (const char* command : {"eval", "inspect"})
    expect_refusal({command, "nowhere"}, ExitCode::kNoInput, {"nowhere"});
  expect_refusal({"export", "nowhere", "--output", "made"}, ExitCode::kNoInput, {"nowhere"});
  expect_refusal({"export", "run", "--output", "data"}, ExitCode::kCannotCreate, {"data"});
  expect_refusal(tiny_training("new", {"--export", "data"}), ExitCode::kCannotCreate, {"data"});
  EXPECT_FALSE(fs::exists(trained_folder() / "new"));
  expect_refusal({"train", "--preset", "tiny", "--data", "nowhere", "--run", "new"},
                 ExitCode::kNoInput, {"nowhere"});
  expect_refusal(tiny_training("run"), ExitCode::kCannotCreate, {"--resume"});
  expect_refusal(tiny_training("run", {"--resume", "--set", "model.width=32"}), ExitCode::kConfig,
                 {"model.width"});
}

TEST(BadInput, ReplaceRemovesDataAlone) {
  expect_refusal({"prepare", "text.txt", "--output", "run", "--replace"}, ExitCode::kCannotCreate,
                 {"run", "did not write"});
  EXPECT_TRUE(fs::exists(trained_folder() / "run" / "checkpoints"));
}

TEST(BadInput, EmptyValuesAndPathsThatCannotBeAreNamed) {
  expect_refusal({"train", "--preset", "tiny", "--data", "", "--run", "new"}, ExitCode::kUsage,
                 {"--data", "empty"});
  expect_refusal({"config", "--preset="}, ExitCode::kUsage, {"--preset", "empty"});
  expect_refusal({"inspect", std::string(300, 'n')}, ExitCode::kNoInput, {"too long"});
  expect_refusal({"prepare", "text.txt", "--output", std::string(300, 'n')},
                 ExitCode::kCannotCreate, {"too long"});
}

TEST(BadInput, SettingsThatWouldChangeNothingAreRefused) {
  expect_refusal(
      {"train", "--init-from", "hf", "--data", "data", "--run", "new", "--set", "model.layers=7"},
      ExitCode::kUsage, {"model.layers=7", "--init-from"});
  expect_refusal({"bench"}, ExitCode::kUsage, {"--preset", "--config", "--model"});
  expect_refusal({"bench", "--preset", "tiny", "--set", "memory.weights=host"}, ExitCode::kUsage,
                 {"memory.weights", "model.*"});
  expect_refusal({"bench", "--preset", "tiny", "--sequence", "65"}, ExitCode::kUsage,
                 {"--sequence 65", "64"});
  expect_refusal({"bench", "--preset", "tiny", "--generate", "3", "--batch", "0"}, ExitCode::kUsage,
                 {"--batch 0", "at least 1"});
}

TEST(BadInput, AnotherTokenizerOfAsManyTokensIsTold) {
  std::string text = read_text(trained_folder() / "text.txt");
  std::replace(text.begin(), text.end(), 'L', '~');
  write_text(trained_folder() / "other.txt", text);
  ASSERT_EQ(run_hybrid(trained_folder(), {"prepare", "other.txt", "--output", "other-data",
                                          "--tokenizer", "characters"})
                .exit_code,
            0);
  expect_refusal({"eval", "run", "--data", "other-data"}, ExitCode::kData, {"other", "tokenizer"});
  expect_refusal({"train", "--resume", "--run", "run", "--data", "other-data"}, ExitCode::kData,
                 {"other", "tokenizer"});
}

TEST(BadInput, AVocabularySmallerThanTheDatasIsNoDamage) {
  expect_refusal(tiny_training("new", {"--set", "model.vocabulary=2"}), ExitCode::kConfig,
                 {"model.vocabulary", "got 2"});
}

TEST(BadInput, AFilePastTheProcesssLimitIsTold) {
  const fs::path& folder = trained_folder();  // made without the limit
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{2048, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const ProcessResult result =
      run_hybrid(folder, {"prepare", "text.txt", "--output", "cut", "--tokenizer", "bytes"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kIo)) << result.errors;
  EXPECT_NE(result.errors.find("too large"), std::string::npos) << result.errors;
  EXPECT_FALSE(fs::exists(folder / "cut"));
}

TEST(BadInput, AClosedStandardErrorLeavesFilesAlone) {
  const std::string prepare = concat("cd ", trained_folder().string(), " && ", HT_HYBRID_TOOL,
                                     " prepare text.txt --tokenizer characters --output ");
  ASSERT_EQ(std::system((prepare + "told 2>/dev/null").c_str()), 0);
  ASSERT_EQ(std::system((prepare + "closed 2>&-").c_str()), 0);
  EXPECT_EQ(fs::file_size(trained_folder() / "closed" / "train_000000.bin"),
            fs::file_size(trained_folder() / "told" / "train_000000.bin"));
}

TEST(BadInput, AFullDiskUnderStandardOutputIsTold) {
  const std::string command = concat(HT_HYBRID_TOOL, " config --schema >/dev/full 2>/dev/null");
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), static_cast<int>(ExitCode::kIo));
}

}  // namespace
}  // namespace hybrid_trainer
