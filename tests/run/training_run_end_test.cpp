#include <fcntl.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/files/checkpoint.h"
#include "src/observability/jsonl_sink.h"
#include "tests/support/faulty_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TrainingRunEnd : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_F(TrainingRunEnd, ReportsFailedOffloadOnConsoleAndInMetrics) {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.predict_aware_memory.offload_strategy = "nvme_offload";
  config.memory.folder = scratch_.path().string();
  config.checkpoint.every_steps = 0;
  std::string console, events;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100'000, before.rlim_max};  // records fit, the optimizer state does not
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(train_tiny(config, data_, scratch_ / "run", false, &console), IoError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  for_each_record(scratch_ / "run" / "metrics.jsonl",
                  [&](const StepRecord& record) { events += record.event + "\n"; });
  for (const std::string& text : {console, events})
    EXPECT_NE(text.find("Predict keeps the optimizer state on the device: "), std::string::npos)
        << text;
}

TEST_F(TrainingRunEnd, DivergenceLeavesCheckpointAndReport) {
  HybridTrainerConfig config = tiny_config();
  config.optimizer.learning_rate = 1e30;
  config.optimizer.clip_norm = 0;
  config.checkpoint.every_steps = 0;
  EXPECT_THROW(train_tiny(config, data_, scratch_ / "run"), Diverged);
  EXPECT_NE(file_text(scratch_ / "run" / "summary.json").find("\"end\":\"diverged\""),
            std::string::npos)
      << file_text(scratch_ / "run" / "summary.json");
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run" / "report.html"));
  EXPECT_NE(newest_checkpoint_digest(scratch_ / "run"), "none");
}

TEST_F(TrainingRunEnd, FinishedRunResumesOnlyWithMoreSteps) {
  HybridTrainerConfig config = tiny_config();
  train_tiny(config, data_, scratch_ / "run");
  const std::string before = newest_checkpoint_digest(scratch_ / "run");
  std::string console;
  const TrainingRunResult again = train_tiny(config, data_, scratch_ / "run", true, &console);
  EXPECT_EQ(again.end, RunEnd::kWasFinished);
  EXPECT_EQ(again.summary_json, file_text(scratch_ / "run" / "summary.json"));
  EXPECT_NE(again.summary_json.find("\"steps\":40"), std::string::npos) << again.summary_json;
  EXPECT_NE(console.find("finished"), std::string::npos);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "run"), before);
  std::filesystem::remove(scratch_ / "run" / "summary.json");  // as after a kill
  EXPECT_NE(train_tiny(config, data_, scratch_ / "run", true).summary_json.find("\"steps\":40"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run" / "summary.json"));
  config.training.steps = 50;
  EXPECT_EQ(train_tiny(config, data_, scratch_ / "run", true).summary.steps, 50);
}

TEST_F(TrainingRunEnd, InterruptedAtLastStepResumesAsFinished) {
  HybridTrainerConfig config = tiny_config();
  const RunSummary whole = train_tiny(config, data_, scratch_ / "run").summary;
  const auto file = scratch_ / "run" / "summary.json";
  std::string text = file_text(file);
  text.replace(text.find("\"finished\""), 10, "\"interrupted\"");
  std::ofstream(file) << text;
  const TrainingRunResult ended = train_tiny(config, data_, scratch_ / "run", true);
  EXPECT_EQ(ended.end, RunEnd::kFinished);
  EXPECT_EQ(ended.summary.final_validation_loss, whole.final_validation_loss);
  EXPECT_NE(file_text(file).find("\"end\":\"finished\""), std::string::npos);
  config.training.steps = 39;
  EXPECT_THROW(train_tiny(config, data_, scratch_ / "run", true), ConfigError);
}

TEST_F(TrainingRunEnd, RunWithoutCheckpointAcceptsNewConfig) {
  train_tiny(tiny_config(), data_, scratch_ / "run");
  std::filesystem::remove_all(scratch_ / "run" / "checkpoints");  // as after a start without memory
  HybridTrainerConfig config = tiny_config();
  config.data.batch_size = 2;
  std::string console;
  EXPECT_EQ(train_tiny(config, data_, scratch_ / "run", true, &console).end, RunEnd::kFinished);
  EXPECT_NE(console.find("starts at step 1"), std::string::npos) << console;
}

TEST_F(TrainingRunEnd, RejectsDamagedTokenizerBeforeFirstStep) {
  std::filesystem::resize_file(data_ / "tokenizer.json", 0);
  EXPECT_THROW(train_tiny(tiny_config(), data_, scratch_ / "run"), DataError);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run" / "metrics.jsonl"));
}

TEST_F(TrainingRunEnd, NonFiniteValidationLossLeavesCheckpoint) {
  HybridTrainerConfig config = tiny_config();
  config.optimizer.learning_rate = 1e30;
  config.schedule.warmup_steps = 0;
  config.training.evaluate_every_steps = 1;
  config.checkpoint.every_steps = 0;
  EXPECT_THROW(train_tiny(config, data_, scratch_ / "run"), Diverged);
  EXPECT_NE(newest_checkpoint_digest(scratch_ / "run"), "none");
}

TEST_F(TrainingRunEnd, RestartsAfterKillBeforeFirstStep) {
  for (const bool resume : {false, true}) {
    const auto run = scratch_ / concat("killed", resume);
    std::filesystem::create_directories(run / "tokenizer");
    for (const char* name : {".lock", "metrics.jsonl"}) std::ofstream(run / name);
    std::ofstream(run / "data.json") << "{\"fol";
    EXPECT_EQ(train_tiny(tiny_config(), data_, run, resume).end, RunEnd::kFinished);
  }
}

/// Trains in a child process with the tool's exit code; its last error is written to `error`.
pid_t train_apart(const HybridTrainerConfig& config, const std::filesystem::path& data,
                  const std::filesystem::path& run, const std::filesystem::path& error) {
  omp_pause_resource_all(omp_pause_hard);  // a child has no OpenMP threads to wait for
  const pid_t child = fork();
  if (child != 0) return child;
  const int said = ::open(error.c_str(), O_WRONLY);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    _exit(train_tiny(config, data, run).end == RunEnd::kInterrupted ? 130 : 0);
  } catch (const Error& problem) {
    const std::string text = problem.what();
    if (::write(said, text.data(), text.size()) < 0) _exit(1);
    _exit(static_cast<int>(problem.code()));
  }
}

int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(TrainingRunEnd, SignalSavesAndResumeIsBitIdentical) {
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 400;
  train_tiny(config, data_, scratch_ / "whole");
  const pid_t child = train_apart(config, data_, scratch_ / "cut", "/dev/null");
  const auto metrics = scratch_ / "cut" / "metrics.jsonl";
  while (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) < 3000)
    usleep(1000);
  kill(child, SIGTERM);
  EXPECT_EQ(exit_code_of(child), 130);
  train_tiny(config, data_, scratch_ / "cut", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"),
            newest_checkpoint_digest(scratch_ / "whole"));
}

TEST_F(TrainingRunEnd, KillWithOffloadedStateResumesBitForBit) {
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 60;
  config.checkpoint.every_steps = 7;
  train_tiny(config, data_, scratch_ / "whole");
  config.memory.folder = scratch_.path().string();
  config.memory.weights = config.memory.optimizer_state = config.memory.activations = "file";
  config.memory.gradients = "consume";
  config.memory.recompute = 0.5;
  for (const std::uintmax_t bytes : {3000u, 11000u, 23000u}) {
    const auto run = scratch_ / concat("killed", bytes);
    const pid_t child = train_apart(config, data_, run, "/dev/null");
    const auto metrics = run / "metrics.jsonl";
    while (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) < bytes)
      usleep(200);
    kill(child, SIGKILL);
    EXPECT_EQ(exit_code_of(child), -1);
    EXPECT_EQ(train_tiny(config, data_, run, true).end, RunEnd::kFinished);
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(scratch_ / "whole")) << bytes;
  }
}

TEST_F(TrainingRunEnd, TruncatedDataLeavesCheckpoint) {
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 100000;
  config.checkpoint.every_steps = 0;
  const pid_t child = train_apart(config, data_, scratch_ / "cut", "/dev/null");
  const auto metrics = scratch_ / "cut" / "metrics.jsonl";
  while (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) < 3000)
    usleep(1000);
  std::filesystem::resize_file(data_ / "train_000000.bin", 1100);
  EXPECT_EQ(exit_code_of(child), static_cast<int>(ExitCode::kIo));
  EXPECT_NE(newest_checkpoint_digest(scratch_ / "cut"), "none");
}

TEST_F(TrainingRunEnd, FailedSaveOnSignalNamesNewestCheckpoint) {
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 100000;
  const auto error = scratch_ / "error";
  ASSERT_EQ(mkfifo(error.c_str(), 0600), 0);
  const int said = ::open(error.c_str(), O_RDWR);  // both ends, so that neither side blocks
  const pid_t child = train_apart(config, data_, scratch_ / "cut", error);
  const std::string checkpoints = scratch_ / "cut" / "checkpoints";
  while (!find_newest_checkpoint(checkpoints).checkpoint) usleep(1000);
  const rlimit no_bytes{0, 0};
  ASSERT_EQ(prlimit(child, RLIMIT_FSIZE, &no_bytes, nullptr), 0);  // every later write fails
  usleep(50'000);                                                  // some steps are not saved
  kill(child, SIGTERM);
  EXPECT_EQ(exit_code_of(child), static_cast<int>(ExitCode::kIo));
  char text[1000] = {};
  ASSERT_GT(::read(said, text, sizeof text - 1), 0);
  ::close(said);
  EXPECT_NE(std::string(text).find("could not be saved"), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("the newest good checkpoint is "), std::string::npos) << text;
  const auto found = find_newest_checkpoint(checkpoints);
  EXPECT_NE(std::string(text).find(found.checkpoint->path), std::string::npos) << text;
}

TEST_F(TrainingRunEnd, FailedCheckpointIsRetriedAtNextStep) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.keep = 100;
  const auto checkpoints = scratch_ / "run" / "checkpoints";
  class InTheWay : public std::stringbuf {  // blocks the folder's path until the error appears
   public:
    explicit InTheWay(std::filesystem::path path) : path_(std::move(path)) {}
    int sync() override {
      if (str().find("vocabulary") != std::string::npos && !put_) {
        put_ = true;
        std::ofstream(path_) << "in the way";
      }
      if (str().find("no checkpoint at step 10: ") != std::string::npos && !removed_)
        removed_ = std::filesystem::remove(path_);
      return 0;
    }

   private:
    std::filesystem::path path_;
    bool put_ = false, removed_ = false;
  } buffer(checkpoints);
  std::ostream console(&buffer);
  console << std::unitbuf;
  run_training({.config = config,
                .data = data_,
                .run = scratch_ / "run",
                .resume = false,
                .init_from = {},
                .command = "test"},
               console);
  EXPECT_NE(buffer.str().find("saved a checkpoint at step 11, after earlier attempts failed"),
            std::string::npos)
      << buffer.str();
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "step-0000000011"));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "step-0000000020"));
}

TEST_F(TrainingRunEnd, RecordsAreSyncedBeforeCheckpoint) {
  class FirstSyncFails : public std::stringbuf {  // first fsync of the steps
   public:
    int sync() override {
      if (!fault_ && str().find("vocabulary") != std::string::npos)
        fault_.emplace(FileFault::Plan{.at = 0, .error = EIO, .only = FileCall::kSync});
      return 0;
    }

   private:
    std::optional<FileFault> fault_;
  } buffer;
  std::ostream console(&buffer);
  console << std::unitbuf;
  const TrainingRunResult result = run_training({.config = tiny_config(),
                                                 .data = data_,
                                                 .run = scratch_ / "run",
                                                 .resume = false,
                                                 .init_from = {},
                                                 .command = "test"},
                                                console);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_NE(buffer.str().find("metrics.jsonl durable: "), std::string::npos) << buffer.str();
  EXPECT_EQ(buffer.str().find("no checkpoint"), std::string::npos) << buffer.str();
}

/// Memory is simulated after the last step, with a model made by the family.
TEST_F(TrainingRunEnd, FinishesWhenMemorySimulationFails) {
  static std::function<void()> fail;  // a family's functions cannot capture
  ModelRegistry families{find_family("gpt2")};
  families.front().make = [](const ModelConfig& model, std::uint64_t seed, const Stream& stream) {
    if (fail) fail();
    return find_family("gpt2").make(model, seed, stream);
  };
  const std::vector<std::function<void()>> failures{
      [] { throw OutOfMemory("memory is short", 8, 4); }, [] { throw std::bad_alloc(); },
      [] { throw DataError("not that"); }};
  for (const auto& failure : failures) {
    fail = nullptr;
    std::filesystem::remove_all(scratch_ / "run");
    TrainingRunSettings settings{.config = tiny_config(),
                                 .data = data_,
                                 .run = scratch_ / "run",
                                 .init_from = {},
                                 .registry = &families};
    settings.on_step = [&](const StepRecord& record) {
      if (record.step == settings.config.training.steps) fail = failure;
    };
    std::ostringstream console;
    EXPECT_EQ(run_training(settings, console).end, RunEnd::kFinished);
    fail = nullptr;
    const std::string summary = file_text(scratch_ / "run" / "summary.json");
    EXPECT_NE(summary.find("\"end\":\"finished\""), std::string::npos) << summary;
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "run" / "report.html"));
    EXPECT_NE(console.str().find("cannot compute the memory that options would save: "),
              std::string::npos)
        << console.str();
  }
}

}  // namespace
}  // namespace hybrid_trainer
