#include <boost/json.hpp>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "tests/tools/finetune_fixture.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

TEST_F(Finetune, TrainsAndItsRunIsEvaluatedSampledAndExported) {
  fs::remove_all(trained_folder() / "at_end");
  const ProcessResult result = of_pairs(
      {"--epochs", "8", "--set", "optimizer.learning_rate=1e-2", "--json", "--export", "at_end"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto summary = boost::json::parse(result.output).as_object();
  EXPECT_EQ(summary.at("end"), "finished");
  const ProcessResult eval = run_hybrid(trained_folder(), {"eval", "tuned", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.errors;
  EXPECT_NEAR(boost::json::parse(eval.output).at("loss").to_number<double>(),
              summary.at("final_validation_loss").to_number<double>(), 1e-6);
  EXPECT_EQ(run_hybrid(trained_folder(), {"eval", "base", "--data", "pairs.jsonl"}).exit_code, 0);
  EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "tuned", "--prompt", "Line"}).exit_code, 0);
  fs::remove_all(trained_folder() / "tuned_hf");
  EXPECT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "tuned_hf"}).exit_code, 0);
  EXPECT_EQ(read_text(trained_folder() / "tuned_hf/model.safetensors"),
            read_text(trained_folder() / "at_end/model.safetensors"));
  const ProcessResult again = finetune({"--resume", "--run", "tuned", "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(again.output, result.output);
  EXPECT_EQ(finetune({"--resume", "--run", "tuned", "--model", "data"}).exit_code,
            static_cast<int>(ExitCode::kUsage));
  const ProcessResult longer = finetune({"--resume", "--run", "tuned", "--epochs", "16", "--json"});
  ASSERT_EQ(longer.exit_code, 0) << longer.errors;
  EXPECT_EQ(boost::json::parse(longer.output).at("steps").as_int64(),
            2 * summary.at("steps").as_int64());
}

TEST_F(Finetune, TrainsAndMeasuresOnTheSplitsOfAFolder) {
  const fs::path folder = trained_folder() / "splits";
  fs::create_directories(folder);
  const std::string text = "{\"text\": \"Line\"}\n";
  write_text(folder / "train.jsonl", text + text + "{\"text\": \"Li\", \"id\": 7}\n");
  write_text(folder / "valid.jsonl", text);
  write_text(folder / "test.jsonl", text + text);
  const ProcessResult run =
      finetune({"--model", "base", "--data", "splits", "--run", "tuned", "--epochs", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  for (const char* words : {"4 rows: 3 to train on, 1 to measure on", "does not read test.jsonl",
                            "takes no part in training: \"id\" (1 row)"})
    EXPECT_NE(run.errors.find(words), std::string::npos) << words << run.errors;
  EXPECT_EQ(run.errors.find("these are the same"), std::string::npos) << run.errors;
  const auto rows_of = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "tuned", "--json"});
    const ProcessResult eval = run_hybrid(trained_folder(), more);
    EXPECT_EQ(eval.exit_code, 0) << eval.errors;
    return boost::json::parse(eval.output).at("tokens").to_number<int>();
  };
  EXPECT_EQ(rows_of({"--data", "splits"}), 2 * rows_of({})) << "test.jsonl, and valid.jsonl";
}

TEST_F(Finetune, AnotherFilesRowsAreMeasuredWholeAndWhatIsCutIsTold) {
  ASSERT_EQ(of_pairs({"--set", "data.sequence_length=4"}).exit_code, 0);
  write_text(trained_folder() / "rows.jsonl", "{\"text\": \"Line 1 Line\"}\n{\"text\": \"Li\"}\n");
  const auto eval = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", "tuned", "--data", "rows.jsonl", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_hybrid(trained_folder(), arguments);
  };
  const ProcessResult whole = eval({});
  EXPECT_EQ(boost::json::parse(whole.output).at("tokens").as_int64(), 11);
  EXPECT_EQ(whole.errors, "");
  const ProcessResult cut = eval({"--sequence-length", "6"});
  EXPECT_EQ(boost::json::parse(cut.output).at("tokens").as_int64(), 7);
  EXPECT_NE(cut.errors.find("1 of 2 rows are longer than 6 tokens and lose 4 tokens"),
            std::string::npos)
      << cut.errors;
}

TEST_F(Finetune, AdaptersAreTrainedPlannedAndExported) {
  for (const char* method : {"lora", "qlora"}) {
    fs::remove_all(trained_folder() / "tuned");
    const ProcessResult result = of_pairs({"--method", method, "--epochs", "4", "--json"});
    ASSERT_EQ(result.exit_code, 0) << method << result.errors;
    fs::remove_all(trained_folder() / "adapter");
    const ProcessResult exported =
        run_hybrid(trained_folder(), {"export", "tuned", "--output", "adapter", "--adapter"});
    EXPECT_EQ(exported.exit_code, 0) << exported.errors;
    EXPECT_TRUE(fs::exists(trained_folder() / "adapter/adapter_model.safetensors"));
    EXPECT_EQ(run_hybrid(trained_folder(), {"sample", "tuned", "--prompt", "Line"}).exit_code, 0);
    EXPECT_EQ(finetune({"--resume", "--run", "tuned", "--json"}).output, result.output);
    EXPECT_EQ(run_hybrid(trained_folder(), {"export", "tuned", "--output", "adapter", "--adapter"})
                  .errors,
              concat("error: ", fs::canonical(trained_folder() / "adapter").string(),
                     " exists already and is not an empty folder; nothing was written\n"));
    fs::remove_all(trained_folder() / "moved");
    fs::rename(trained_folder() / "base", trained_folder() / "moved");
    const ProcessResult gone = finetune({"--resume", "--run", "tuned"});
    EXPECT_EQ(gone.exit_code, static_cast<int>(ExitCode::kNoInput));
    EXPECT_NE(gone.errors.find("finetune --model"), std::string::npos) << gone.errors;
    const ProcessResult moved = finetune({"--resume", "--run", "tuned", "--model", "moved"});
    EXPECT_EQ(moved.exit_code, 0) << moved.errors;
    fs::rename(trained_folder() / "moved", trained_folder() / "base");
    const ProcessResult back = finetune({"--resume", "--run", "tuned", "--model", "base"});
    EXPECT_EQ(back.exit_code, 0) << back.errors;
    const ProcessResult plan =
        run_hybrid(trained_folder(), {"plan", "--model", "base", "--method", method, "--json"});
    EXPECT_EQ(plan.exit_code, 0) << plan.errors;
    const ProcessResult of_ranks =
        run_hybrid(trained_folder(), {"plan", "--model", "base", "--method", method, "--devices",
                                      "2", "--set", "gradient_accumulation.micro_batches=2"});
    EXPECT_NE(of_ranks.output.find("`hybrid finetune --ranks 2"), std::string::npos)
        << of_ranks.output << of_ranks.errors;
  }
}

TEST_F(Finetune, AnAdapterIsTrainedOnWithItsFoldersChatTemplate) {
  const fs::path root = trained_folder(), adapter = root / "styled";
  for (const char* name : {"styled", "again"}) fs::remove_all(root / name);
  ASSERT_EQ(of_pairs({"--method", "lora", "--epochs", "1"}).exit_code, 0);
  ASSERT_EQ(run_hybrid(root, {"export", "tuned", "--output", "styled", "--adapter"}).exit_code, 0);
  const std::string style = "{% for m in messages %}{{ m.content }};\n{% endfor %}";
  fs::copy(root / "base/tokenizer.json", adapter, fs::copy_options::overwrite_existing);
  write_text(adapter / "chat_template.jinja", style);
  const std::vector<std::string> begin{
      "--model", "base",        "--adapter",    "styled",
      "--data",  "pairs.jsonl", "--validation", "pairs.jsonl",
      "--run",   "again",       "--set",        "data.validation_fraction=0.5"};
  const ProcessResult again = finetune(begin);
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_NE(again.errors.find("data.validation_fraction holds back no rows"), std::string::npos);
  EXPECT_EQ(read_text(root / "again/tokenizer/chat_template.jinja"), style);
  std::vector<std::string> of_dora = begin;
  of_dora.insert(of_dora.end(), {"--method", "dora"});
  EXPECT_NE(finetune(of_dora).errors.find("of the variant lora"), std::string::npos);
}

TEST_F(Finetune, AFewRowsAreSeenOftenEnoughAndThatIsSaid) {
  const ProcessResult result = of_pairs({"--method", "lora", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto summary = boost::json::parse(result.output).as_object();
  EXPECT_EQ(summary.at("steps").as_int64(), 30);
  EXPECT_NE(result.errors.find("small file: 2 rows in 1 sequence of up to 8 tokens; training 30 "
                               "epochs, 30 steps of 1; --epochs, --batch-size and "
                               "data.sequence_length change that"),
            std::string::npos)
      << result.errors;
  EXPECT_EQ(summary.at("phases").at("predict").at("steps").as_int64(), 0) << "plain by default";
  fs::remove_all(trained_folder() / "tuned");
  const ProcessResult told = of_pairs({"--method", "lora", "--epochs", "1"});
  EXPECT_NE(told.errors.find("lora of rank 16, alpha 32, on all-linear"), std::string::npos)
      << told.errors;
  fs::remove_all(trained_folder() / "tuned");
  const ProcessResult asked = of_pairs({"--epochs", "1", "--json"});
  EXPECT_EQ(boost::json::parse(asked.output).at("steps").as_int64(), 1);
}

TEST_F(Finetune, MeasuresTheLossBeforeTrainingAsEvalDoesOfTheBase) {
  const ProcessResult run = of_pairs({"--validation", "pairs.jsonl", "--epochs", "3", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const ProcessResult before =
      run_hybrid(trained_folder(), {"eval", "base", "--data", "pairs.jsonl", "--json"});
  EXPECT_NEAR(only_object(run.output).at("initial_validation_loss").to_number<double>(),
              only_object(before.output).at("loss").to_number<double>(), 1e-6);
  EXPECT_NE(run.errors.find(" before training"), std::string::npos) << run.errors;
}

TEST_F(Finetune, TakesWordsOfOtherToolsOrNamesItsOwn) {
  const ProcessResult run = of_pairs({"--set", "observability.answers=0", "--lr", "3e-3",
                                      "--batch-size", "1", "--method", "dora", "--epochs", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const auto config = only_object(read_text(trained_folder() / "tuned/config.json"));
  EXPECT_EQ(config.at("optimizer").at("learning_rate").to_number<double>(), 3e-3);
  EXPECT_EQ(config.at("data").at("batch_size").to_number<int>(), 1);
  EXPECT_EQ(config.at("lora").at("variant").as_string(), "dora");
  EXPECT_EQ(config.at("observability").at("answers").to_number<int>(), 0);
  for (const char* option : {"--num_train_epochs", "--learning-rate",
                             "--per-device-train-batch-size", "--lora_r", "--output_dir"}) {
    const ProcessResult other = of_pairs({option, "3"});
    EXPECT_EQ(other.exit_code, 64) << option;
    EXPECT_NE(other.errors.find("; want --"), std::string::npos) << other.errors;
  }
}

TEST_F(Finetune, EpochsGiveTheSteps) {
  const auto steps = [&](const char* epochs) {
    fs::remove_all(trained_folder() / "tuned");
    const ProcessResult result = of_pairs({"--epochs", epochs, "--set", "data.batch_size=1",
                                           "--set", "data.sequence_length=8", "--json"});
    return boost::json::parse(result.output).at("steps").as_int64();
  };
  EXPECT_EQ(steps("6"), 2 * steps("3"));
}

/// What stands after `words` in what timeout lets the tool say.
std::string line_after_timeout(const char* seconds, const char* words) {
  fs::remove_all(trained_folder() / "tuned");
  const std::string command =
      concat("cd '", trained_folder().string(), "' && timeout ", seconds, " '", HT_HYBRID_TOOL,
             "' finetune --model base --data pairs.jsonl --run tuned --set training.steps=1000000",
             " >/dev/null 2>said");
  EXPECT_NE(std::system(command.c_str()), 0);
  const std::string said = read_text(trained_folder() / "said");
  const auto at = said.rfind(words);
  EXPECT_NE(at, std::string::npos) << said;
  return at == std::string::npos ? "" : said.substr(at + std::string(words).size());
}

// timeout signals its child, and then the child's group.
TEST_F(Finetune, StoppedByTimeoutItIsSavedAndSaysWhatGoesOn) {
  const std::string command = line_after_timeout("3", "which is saved; go on with: ");
  EXPECT_EQ(command, concat(HT_HYBRID_TOOL, " finetune --resume --run tuned\n"));
  EXPECT_NE(newest_checkpoint_digest(trained_folder() / "tuned"), "none");
  fs::remove_all(trained_folder() / "tuned");
}

TEST_F(Finetune, KilledAndResumedItHasTheSameBits) {
  const std::vector<std::string> settings{
      "--epochs", "400", "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep=100"};
  ASSERT_EQ(of_pairs(settings).exit_code, 0);
  const std::string wanted = newest_checkpoint_digest(trained_folder() / "tuned");
  fs::remove_all(trained_folder() / "tuned");
  std::string command = concat("cd '", trained_folder().string(), "' || exit 0; '", HT_HYBRID_TOOL,
                               "' finetune --model base --data pairs.jsonl --run tuned");
  for (const std::string& word : settings) command += " " + word;
  command +=
      " >/dev/null 2>&1 & p=$!; while kill -0 $p && ! [ -e tuned/checkpoints/step-0000000003 ]; do"
      " sleep 0.01; done; kill -9 $p; wait $p";
  ASSERT_EQ(std::system(concat("(", command, ") 2>/dev/null").c_str()) == 0, false);
  ASSERT_NE(newest_checkpoint_digest(trained_folder() / "tuned"), wanted) << "killed too late";
  fs::rename(trained_folder() / "base", trained_folder() / "elsewhere");  // all is in the run
  const ProcessResult resumed = finetune({"--resume", "--run", "tuned"});
  fs::rename(trained_folder() / "elsewhere", trained_folder() / "base");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(newest_checkpoint_digest(trained_folder() / "tuned"), wanted);
  write_text(trained_folder() / "pairs.jsonl", "{\"text\": \"Line\"}\n");
  EXPECT_EQ(finetune({"--resume", "--run", "tuned", "--set", "training.steps=99"}).exit_code,
            static_cast<int>(ExitCode::kData));
  EXPECT_EQ(run_hybrid(trained_folder(), {"eval", "tuned"}).exit_code,
            static_cast<int>(ExitCode::kData));
}

TEST_F(Finetune, BadInputIsNamed) {
  const auto code = [](ExitCode code) { return static_cast<int>(code); };
  EXPECT_EQ(finetune({"--run", "tuned"}).exit_code, code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "ful"}).exit_code, code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "qlora", "--set", "lora.rank=0"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "full", "--set", "lora.rank=4"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--method", "qlora", "--set", "lora.base=bf16"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--epochs", "0"}).exit_code, code(ExitCode::kUsage));
  const ProcessResult many = of_pairs({"--epochs", "1e30"});
  EXPECT_EQ(many.exit_code, code(ExitCode::kUsage));
  EXPECT_NE(many.errors.find("at most 1000000"), std::string::npos) << many.errors;
  const ProcessResult hub =
      finetune({"--model", "an-owner/a-model", "--data", "pairs.jsonl", "--run", "tuned"});
  EXPECT_EQ(hub.exit_code, code(ExitCode::kNoInput));
  EXPECT_NE(hub.errors.find("an-owner/a-model: is no folder here"), std::string::npos)
      << hub.errors;
  EXPECT_NE(hub.errors.find("hf download an-owner/a-model --local-dir a-model"), std::string::npos)
      << hub.errors;
  const ProcessResult none = finetune({"--resume", "--run", "tuned"});
  EXPECT_EQ(none.exit_code, code(ExitCode::kNoInput));
  EXPECT_NE(none.errors.find("tuned: does not exist"), std::string::npos) << none.errors;
  EXPECT_EQ(of_pairs({"--epochs", "1", "--set", "training.steps=3"}).exit_code,
            code(ExitCode::kUsage));
  EXPECT_EQ(of_pairs({"--set", "model.width=8"}).exit_code, code(ExitCode::kUsage));
  EXPECT_EQ(finetune({"--model", "base", "--data", "none.jsonl", "--run", "tuned"}).exit_code,
            code(ExitCode::kNoInput));
  EXPECT_EQ(finetune({"--model", "data", "--data", "pairs.jsonl", "--run", "tuned"}).exit_code,
            code(ExitCode::kNoInput));
  write_text(trained_folder() / "pairs.jsonl", "\n");
  const ProcessResult empty = of_pairs();
  EXPECT_EQ(empty.exit_code, code(ExitCode::kData));
  EXPECT_NE(empty.errors.find("holds no examples"), std::string::npos) << empty.errors;
  write_text(trained_folder() / "pairs.jsonl", "{}\n");
  const ProcessResult refused = of_pairs();
  EXPECT_EQ(refused.exit_code, code(ExitCode::kData));
  EXPECT_NE(refused.errors.find("every line is refused; line 1"), std::string::npos)
      << refused.errors;
  EXPECT_FALSE(fs::exists(trained_folder() / "tuned"));
}

TEST_F(Finetune, KeepsStandardInputAndGoesOnFromIt) {
  const fs::path root = trained_folder();
  const std::vector<std::string> of_input{"finetune", "--model", "base",  "--data",
                                          "-",        "--run",   "tuned", "--json"};
  const ProcessResult result = run_hybrid(root, of_input, "pairs.jsonl");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(read_text(root / "tuned/examples.jsonl"), read_text(root / "pairs.jsonl"));
  EXPECT_EQ(run_hybrid(root, of_input, "pairs.jsonl").exit_code,
            static_cast<int>(ExitCode::kCannotCreate));
  fs::remove_all(root / "carried");
  fs::rename(root / "tuned", root / "carried");
  const ProcessResult again = finetune({"--resume", "--run", "carried", "--data", "-", "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  const auto losses = [](const ProcessResult& of) {
    return only_object(of.output).at("final_validation_loss");
  };
  EXPECT_EQ(losses(again), losses(result));
  EXPECT_EQ(losses(result), (fs::remove_all(root / "tuned"), losses(of_pairs({"--json"}))));
  EXPECT_EQ(run_hybrid(root, {"eval", "carried"}).exit_code, 0);
}

TEST_F(Finetune, BeginsAgainWhereAStartWasKilled) {
  const fs::path root = trained_folder();
  const std::vector<std::string> one_step{"--method", "lora", "--set", "training.steps=1"};
  const auto leave_start = [&] {
    fs::remove_all(root / "tuned");
    fs::create_directories(root / "tuned");
    write_text(root / "tuned/.lock", "1");
    write_text(root / "tuned/answers.json", "{\"answers\": []}");
    write_text(root / "tuned/base.json", R"({"folder": "another", "identity": "0"})");
  };
  leave_start();
  const ProcessResult alone = finetune({"--resume", "--run", "tuned"});
  EXPECT_EQ(alone.exit_code, static_cast<int>(ExitCode::kNoInput));
  EXPECT_NE(alone.errors.find("whole command"), std::string::npos) << alone.errors;
  EXPECT_EQ(of_pairs(one_step).exit_code, 0);
  leave_start();
  std::vector<std::string> resumed = one_step;
  resumed.emplace_back("--resume");
  EXPECT_EQ(of_pairs(resumed).exit_code, 0);
}

TEST_F(Finetune, TakesTheStandardInputThatAKilledStartKept) {
  const fs::path root = trained_folder();
  const auto start = [&](const std::string& input, std::vector<std::string> more) {
    fs::remove_all(root / "tuned");
    fs::create_directories(root / "tuned");
    write_text(root / "tuned/.lock", "1");
    fs::copy_file(root / "pairs.jsonl", root / "tuned/examples.jsonl");
    more.insert(more.begin(), {"finetune", "--model", "base", "--data", "-", "--run", "tuned",
                               "--set", "training.steps=1"});
    return run_hybrid(root, more, input);
  };
  EXPECT_EQ(start("pairs.jsonl", {}).exit_code, 0);
  write_text(root / "other.jsonl", "{\"text\": \"Line\"}\n");
  const ProcessResult other = start("other.jsonl", {});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kCannotCreate)) << other.errors;
  EXPECT_EQ(read_text(root / "tuned/examples.jsonl"), read_text(root / "pairs.jsonl"));
  EXPECT_EQ(start("other.jsonl", {"--resume"}).exit_code, 0) << "which reads no input";
}

TEST_F(Finetune, LeavesNothingOfStandardInputWithoutARun) {
  const fs::path root = trained_folder();
  write_text(root / "wrong.jsonl", "{\"question\": \"a\"}\n");
  const ProcessResult result = run_hybrid(
      root, {"finetune", "--model", "base", "--data", "-", "--run", "tuned"}, "wrong.jsonl");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kData)) << result.errors;
  EXPECT_FALSE(fs::exists(root / "tuned"));
}

TEST_F(Finetune, TakesTablesByOtherNamesAndKeepsTheNames) {
  const fs::path root = trained_folder();
  write_text(root / "pairs.csv", "q,a\nLine ,1\nLine ,2\n\"Line \",3\n");
  const auto of_table = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model", "base", "--data", "pairs.csv", "--run", "tuned"});
    return finetune(more);
  };
  EXPECT_EQ(of_table({}).exit_code, static_cast<int>(ExitCode::kData));
  const ProcessResult result = of_table({"--columns", "prompt=q,completion=a", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("(CSV, 3 rows of prompt and completion)"), std::string::npos)
      << result.errors;
  const auto config = boost::json::parse(read_text(root / "tuned/config.json"));
  EXPECT_EQ(config.at("data").at("columns"), "prompt=q,completion=a");
  EXPECT_EQ(run_hybrid(root, {"eval", "tuned"}).exit_code, 0);
  EXPECT_EQ(run_hybrid(root, {"eval", "tuned", "--data", "pairs.csv"}).exit_code, 0);
  EXPECT_EQ(run_hybrid(root, {"eval", "tuned", "--data", "pairs.jsonl", "--columns",
                              "prompt=prompt,completion=completion"})
                .exit_code,
            0);
  EXPECT_EQ(finetune({"--resume", "--run", "tuned"}).exit_code, 0);
}

TEST_F(Finetune, RefusesPreferencesByTheirLine) {
  write_text(trained_folder() / "preferences.jsonl",
             "{\"text\": \"Line\"}\n{\"prompt\": \"L\", \"chosen\": \"i\", \"rejected\": \"n\"}\n");
  const ProcessResult result =
      finetune({"--model", "base", "--data", "preferences.jsonl", "--run", "tuned"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_NE(result.errors.find("line 2 of preferences.jsonl is a preference"), std::string::npos)
      << result.errors;
}

}  // namespace
}  // namespace hybrid_trainer
