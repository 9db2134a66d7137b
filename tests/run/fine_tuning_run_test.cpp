#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/observability/model_texts.h"
#include "src/distributed/host_ranks.h"
#include "src/run/language_data.h"
#include "tests/support/model_folders.h"
#include "tests/support/tiny_run.h"

// Runs on files of examples.
namespace hybrid_trainer {
namespace {

constexpr int kRows = 24;

class FineTuningRun : public ::testing::Test {
 protected:
  FineTuningRun() {
    make_folder("gpt2");
    std::string lines;
    for (int i = 0; i < kRows; ++i)
      lines += concat(R"({"prompt":")", std::string(static_cast<std::size_t>(i % 5), 'x'),
                      R"(ab","completion":")", i % 2 == 0 ? "cd" : "cdcd", "\"}\n");
    write_text(scratch_ / "examples.jsonl", lines);
  }

  void make_folder(const std::string& family, std::int64_t vocabulary = 256) const {
    const Stream stream(MemoryPool::create("test"));
    HybridTrainerConfig shape = tiny_config();
    shape.model.family = family;
    shape.model.vocabulary = vocabulary;
    std::filesystem::remove_all(scratch_ / "model");
    export_hugging_face(*make_model(shape.model, 5, stream), nullptr, scratch_ / "model", stream);
    write_text(scratch_ / "model/tokenizer.json", R"({"type":"bytes"})");
  }

  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.data.batch_size = 2;
    config.data.layout = "packed";
    config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
    return config;
  }

  TrainingRunResult train(const HybridTrainerConfig& config, const std::string& run,
                          bool resume = false) {
    console_.str("");
    return run_training({.config = config,
                         .data = scratch_ / "examples.jsonl",
                         .run = scratch_ / run,
                         .resume = resume,
                         .init_from = scratch_ / "model",
                         .command = "test"},
                        console_);
  }

  void train_over_ranks(const HybridTrainerConfig& config, const std::string& run, int count) {
    const Interruption interruption;
    run_thread_ranks(count, [&](Communicator& ranks) {
      std::ostringstream console;
      TrainingRunSettings settings{.config = config,
                                   .data = scratch_ / "examples.jsonl",
                                   .run = scratch_ / run,
                                   .init_from = scratch_ / "model",
                                   .command = "test"};
      settings.interruption = &interruption;
      settings.ranks = &ranks;
      run_training(settings, console);
    });
  }

  const TemporaryFolder scratch_;
  std::ostringstream console_;
};

TEST_F(FineTuningRun, LowersValidationLossThroughAllPhases) {
  for (const char* family : {"gpt2", "llama"}) {
    make_folder(family);
    const TrainingRunResult result = train(config(), family);
    const auto records = records_of(scratch_ / family);
    EXPECT_LT(*result.summary.final_validation_loss, 0.8 * records.front().loss) << family;
    for (const Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0) << family;
  }
}

TEST_F(FineTuningRun, OverRanksMatchesOneRankBitForBit) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.gradient_accumulation.micro_batches = 3;
  config.data.batch_size = 1;
  config.training.threads = 1;
  train_over_ranks(config, "one", 1);
  for (const int ranks : {2, 3}) {
    const std::string run = concat("ranks", ranks);
    train_over_ranks(config, run, ranks);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / run), newest_checkpoint_digest(scratch_ / "one"));
  }
}

std::vector<std::int64_t> saved_steps(const std::filesystem::path& run) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints"))
    steps.push_back(std::stoll(entry.path().filename().string().substr(5)));
  std::ranges::sort(steps);
  return steps;
}

TEST_F(FineTuningRun, SavesAtConfiguredEpochInterval) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.data.layout = "apart";
  config.data.batch_size = 4;  // of 22 training rows
  config.training.steps = 12;
  config.checkpoint.every_steps = 0;
  config.checkpoint.keep = 100;
  train(config, "each");
  EXPECT_EQ(saved_steps(scratch_ / "each"), (std::vector<std::int64_t>{6, 11, 12}));
  config.checkpoint.every_epochs = 2;
  train(config, "second");
  EXPECT_EQ(saved_steps(scratch_ / "second"), (std::vector<std::int64_t>{11, 12}));
  config.checkpoint.every_epochs = 1;
  config.data.batch_size = 44;  // two epochs per step; ten steps count as one
  train(config, "short");
  EXPECT_EQ(saved_steps(scratch_ / "short"), (std::vector<std::int64_t>{10, 12}));
  config.checkpoint.every_epochs = 0;
  train(config, "none");
  EXPECT_EQ(saved_steps(scratch_ / "none"), (std::vector<std::int64_t>{12}));
}

TEST_F(FineTuningRun, AsynchronousOptimizerLowersLoss) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.phases.method = "asynchronous_optimizer";
  const TrainingRunResult result = train(config, "run");
  EXPECT_LT(*result.summary.final_validation_loss, 0.8 * records_of(scratch_ / "run")[0].loss);
  EXPECT_GT(result.summary.speculation->steps, 0);
}

TEST_F(FineTuningRun, PackedRowsMatchSeparateRows) {
  for (const char* family : {"gpt2", "llama"}) {
    make_folder(family);
    HybridTrainerConfig config = FineTuningRun::config();
    config.phases.max_predict_steps = 0;
    config.training.steps = 4;
    config.schedule.warmup_steps = 0;
    config.data.validation_fraction = 0;
    const auto records = [&](const char* layout) {
      config.data.layout = layout;
      const auto tokenizer = load_tokenizer(scratch_ / "model");
      const ExampleData data = read_example_data(
          {.examples = scratch_ / "examples.jsonl", .tokenizer = scratch_ / "model"}, config.data);
      // Each step has all rows.
      config.data.batch_size = PackedRows(data.train, packing_of(config.data, *tokenizer)).size();
      const std::string run = concat(family, "-", layout);
      train(config, run);
      return records_of(scratch_ / run);
    };
    const auto apart = records("apart");
    EXPECT_EQ(config.data.batch_size, kRows);
    const auto packed = records("packed");
    EXPECT_LT(config.data.batch_size, kRows);
    for (std::size_t i = 0; i < apart.size(); ++i) {
      EXPECT_NEAR(packed[i].loss, apart[i].loss, 1e-4 * apart[i].loss) << family << i;
      EXPECT_NEAR(*packed[i].gradient_norm, *apart[i].gradient_norm, 1e-3) << family << i;
    }
  }
}

TEST_F(FineTuningRun, EvaluatesOnSeparateValidationFile) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.training.steps = 3;
  write_text(scratch_ / "others.jsonl", R"({"prompt":"ab","completion":"zz"})");
  TrainingRunSettings settings{.config = config,
                               .data = scratch_ / "examples.jsonl",
                               .validation = scratch_ / "others.jsonl",
                               .run = scratch_ / "run",
                               .init_from = scratch_ / "model",
                               .command = "test"};
  const double loss = *run_training(settings, console_).summary.final_validation_loss;
  settings.validation.clear();
  settings.run = scratch_ / "held_back";
  EXPECT_NE(*run_training(settings, console_).summary.final_validation_loss, loss);
  write_text(scratch_ / "others.jsonl", R"({"prompt":"ab","completion":"zy"})");
  settings.run = scratch_ / "run";
  settings.resume = true;
  settings.config.training.steps = 4;
  EXPECT_THROW(run_training(settings, console_), DataError);  // finds the run's own data again
}

TEST_F(FineTuningRun, RejectsTableSmallerThanTokenizer) {
  make_folder("gpt2", 250);
  EXPECT_THROW(train(config(), "run"), DataError);
}

TEST_F(FineTuningRun, AccumulationMatchesLargeBatch) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.phases.max_predict_steps = 0;
  config.training.steps = 6;
  config.data.batch_size = 4;
  train(config, "large");
  config.data.batch_size = 1;
  config.gradient_accumulation.micro_batches = 4;
  train(config, "accumulated");
  const auto large = records_of(scratch_ / "large"), parts = records_of(scratch_ / "accumulated");
  ASSERT_EQ(large.size(), parts.size());
  for (std::size_t i = 0; i < large.size(); ++i) {
    EXPECT_NEAR(large[i].loss, parts[i].loss, 1e-5 * large[i].loss) << i;
    EXPECT_NEAR(large[i].gradient_norm.value(), parts[i].gradient_norm.value(), 1e-4) << i;
  }
}

TEST_F(FineTuningRun, ResumesFromEachPhaseWithoutModelFolder) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 50;
  train(config, "whole");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  // Without a checkpoint, the run restarts from its recorded base.
  for (const std::int64_t step : {0, 3, 11, 17, 25}) {
    if (step == 3) std::filesystem::remove_all(scratch_ / "model");
    const std::string copy = concat("from", step);
    copy_up_to(scratch_ / "whole", scratch_ / copy, step, config.training.steps);
    run_training({.config = config,
                  .data = scratch_ / "examples.jsonl",
                  .run = scratch_ / copy,
                  .resume = true,
                  .init_from = {},
                  .command = "test"},
                 console_);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / copy), wanted) << step;
  }
}

TEST_F(FineTuningRun, ReportsSkippedRowsAndRejectsChangedData) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.training.steps = 2;
  const std::string sound = read_text(scratch_ / "examples.jsonl");
  write_text(scratch_ / "examples.jsonl",
             sound + "{}\n{\"text\":\"" + std::string(40, 'y') + "\"}\n");
  train(config, "run");
  EXPECT_NE(console_.str().find(concat("line ", kRows + 1, " of ")), std::string::npos);
  EXPECT_NE(console_.str().find("1 of "), std::string::npos) << console_.str();
  EXPECT_NE(console_.str().find(" rows are longer than "), std::string::npos) << console_.str();
  write_text(scratch_ / "examples.jsonl", sound);
  config.training.steps = 4;
  EXPECT_THROW(train(config, "run", true), DataError);
  write_text(scratch_ / "examples.jsonl", "{}\n");
  EXPECT_THROW(train(config, "other"), DataError);
}

TEST_F(FineTuningRun, RejectsSettingsIncompatibleWithRows) {
  HybridTrainerConfig config = FineTuningRun::config();
  config.data.layout = "windows";
  EXPECT_THROW(train(config, "run"), ConfigError);
  config = FineTuningRun::config();
  config.training.cuda_graphs = true;
  EXPECT_THROW(train(config, "run"), ConfigError);
  config = FineTuningRun::config();
  config.stages = {{.until = 0.5, .sequence_length = 8}};
  EXPECT_THROW(train(config, "run"), ConfigError);
  EXPECT_THROW(run_training({.config = FineTuningRun::config(),
                             .data = scratch_ / "examples.jsonl",
                             .run = scratch_ / "none",
                             .init_from = {},
                             .command = "test"},
                            console_),
               UsageError);
}

TEST_F(FineTuningRun, HoldsOutRequestedFraction) {
  const auto split = [&](double fraction) {
    DataConfig config{.sequence_length = 16, .validation_fraction = fraction};
    const ExampleData data = read_example_data(
        {.examples = scratch_ / "examples.jsonl", .tokenizer = scratch_ / "model"}, config);
    return std::pair(data.train.size(), data.validation.size());
  };
  EXPECT_EQ(split(0.25), std::pair(std::size_t{kRows * 3 / 4}, std::size_t{kRows / 4}));
  EXPECT_EQ(split(0.001), std::pair(std::size_t{kRows - 1}, std::size_t{1}));
  EXPECT_EQ(split(0), std::pair(std::size_t{kRows}, std::size_t{kRows}));
}

TEST_F(FineTuningRun, ShowsAnswersBeforeAndAfterTraining) {
  for (const std::int64_t rank : {0, 4}) {
    HybridTrainerConfig config = FineTuningRun::config();
    config.lora.rank = rank;
    config.training.steps = 30;
    config.optimizer.learning_rate = 1e-2;
    const std::string name = concat("of", rank);
    config.observability.answers = 0;
    train(config, name + "none");
    EXPECT_EQ(console_.str().find("  prompt  "), std::string::npos);
    EXPECT_TRUE(read_answers((scratch_ / (name + "none") / "answers.json").string()).empty());
    config.observability.answers = 2;
    train(config, name);
    const auto answers = read_answers((scratch_ / name / "answers.json").string());
    ASSERT_EQ(answers.size(), 2u);
    for (const ComparedAnswer& answer : answers) {
      EXPECT_TRUE(answer.prompt.ends_with("ab")) << answer.prompt;
      EXPECT_TRUE(answer.wanted.starts_with("cd")) << answer.wanted;
      EXPECT_NE(answer.before, answer.after);
      EXPECT_NE(console_.str().find("  prompt  " + answer.prompt), std::string::npos);
    }
    EXPECT_NE(read_file(scratch_ / name / "report.html", 1 << 24).find("card answers"),
              std::string::npos);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / name),
              newest_checkpoint_digest(scratch_ / (name + "none")))
        << "answers changed the training";
    config.training.steps = 34;
    train(config, name, true);
    const auto later = read_answers((scratch_ / name / "answers.json").string());
    ASSERT_EQ(later.size(), 2u);
    EXPECT_EQ(later[0].before, answers[0].before);
  }
}

}  // namespace
}  // namespace hybrid_trainer
