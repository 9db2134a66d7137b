#include "src/run/run_memory.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/files/config_fields.h"
#include "src/observability/jsonl_sink.h"
#include "src/run/run_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

class RunMemory : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_F(RunMemory, LosslessOptionPairsDoNotChangeLosses) {
  const auto losses = [&](const std::vector<std::string>& options) {
    HybridTrainerConfig config = tiny_config();
    config.model.layers = 3;
    config.model.dropout = 0.1;
    config.gradient_accumulation.micro_batches = 2;
    std::string name = "run";
    for (const std::string& option : options) {
      name += "-" + option;
      const std::size_t equals = option.find('=');
      const std::string group = option.find('.') < equals ? "" : "memory.";
      set_field(config, group + option.substr(0, equals), option.substr(equals + 1));
    }
    train_tiny(config, data_, scratch_ / name);
    std::vector<double> found;
    for_each_record(scratch_ / name / "metrics.jsonl",
                    [&](const StepRecord& record) { found.push_back(record.loss); });
    return found;
  };
  const std::vector<double> wanted = losses({});
  const std::vector<std::string> options{
      "recompute=0.3",        "recompute=1",         "activations=host", "activations=file",
      "weights=file",         "gradients=consume",   "weights=host",     "optimizer_state=host",
      "optimizer_state=file", "optimizer.paged=true"};
  for (const std::string& one : options) {
    EXPECT_EQ(losses({one}), wanted) << one;
    for (const std::string& other : options) {
      if (one.substr(0, 5) < other.substr(0, 5)) {
        EXPECT_EQ(losses({one, other}), wanted) << one << " " << other;
      }
    }
  }
}

/// The factors U and V of two layers of T + U·Vᵀ by position: 16 × 2·2 heads·rank 8, in f32.
TEST_F(RunMemory, DeviceMapPlacesFactorTables) {
  constexpr std::size_t kBytes = 2 * 16 * 2 * 2 * 8 * 4;
  const auto trained = [&](const std::string& place) {
    HybridTrainerConfig config = tiny_config();
    config.model.family = "semiseparable";
    config.model.mixers = "p";
    config.model.layers = 2;
    config.phases.max_predict_steps = 0;
    if (!place.empty()) config.memory.device_map = "h.*.mix.factors.weight=" + place;
    const auto run = scratch_ / ("run" + place);
    train_tiny(config, data_, run);
    return std::pair{newest_checkpoint_digest(run), records_of(run).back()};
  };
  const auto [wanted, near] = trained("");
  const auto [digest, away] = trained("host");
  EXPECT_EQ(digest, wanted);
  EXPECT_EQ(near.host_memory.live_total, 0u);
  EXPECT_EQ(away.host_memory.live_total, kBytes);
  EXPECT_EQ(trained("file").first, wanted);
}

TEST_F(RunMemory, RejectsOversizedModelBeforeCreatingFolder) {
  HybridTrainerConfig config = tiny_config();
  config.model.layers = 20;
  config.model.width = 16384;  // 258 GB of weights
  for (const char* plan : {"off", "auto"}) {
    config.memory.plan = plan;
    try {
      train_tiny(config, data_, scratch_ / "run");
      FAIL() << "it should not have started";
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("available"), std::string::npos) << text;
    }
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
  }
}

TEST_F(RunMemory, PagedStateFillsDeviceBudget) {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.phases.max_predict_steps = 0;
  train_tiny(config, data_, scratch_ / "plain");
  config.optimizer.paged = true;
  const auto full = [&](const std::string& name) {
    const RunSummary summary = train_tiny(config, data_, scratch_ / name).summary;
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / name),
              newest_checkpoint_digest(scratch_ / "plain"));
    if (config.memory.device_budget.bytes > 0) {
      EXPECT_LE(summary.device_peak_bytes, config.memory.device_budget.bytes);
    }
    return summary.phase(Phase::kFull);
  };
  const auto state_of = [](const PhaseUse& use) {
    return use.sum.device_memory.peak[static_cast<std::size_t>(MemoryKind::kOptimizerState)];
  };
  const PhaseUse none = full("none");
  const auto with_room_for = [&](std::size_t bytes) {  // pages use up to 85 % of a budget
    config.memory.device_budget.bytes = (none.peak_bytes + bytes) * 100 / 85;
  };
  with_room_for(150000);
  const PhaseUse some = full("some");
  EXPECT_GT(state_of(some), state_of(none));
  with_room_for(1000000);
  EXPECT_GT(state_of(full("all")), state_of(some));
}

/// A config large enough for placements to matter.
HybridTrainerConfig roomy_config() {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.model.layers = 2;
  config.training.steps = 20;
  return config;
}

TEST_F(RunMemory, PlanFitsBudgetWithoutChangingLosses) {
  HybridTrainerConfig config = roomy_config();
  const auto losses = [&](const char* name) {
    std::vector<double> found;
    for_each_record(scratch_ / name / "metrics.jsonl",
                    [&](const StepRecord& record) { found.push_back(record.loss); });
    return found;
  };
  const std::size_t plain =
      train_tiny(config, data_, scratch_ / "plain").summary.phase(Phase::kFull).peak_bytes;
  config.memory.plan = "auto";
  config.memory.device_budget.bytes = plain * 8 / 10;
  std::string console;
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "planned", false, &console);
  EXPECT_LE(result.summary.device_peak_bytes, plain * 8 / 10);
  EXPECT_NE(console.find("planned: memory."), std::string::npos) << console;
  EXPECT_EQ(console.find("memory is too small"), std::string::npos) << console;
  const HybridTrainerConfig chosen = config_of_run({(scratch_ / "planned").string()});
  if (chosen.data.batch_size == config.data.batch_size) {
    EXPECT_EQ(losses("planned"), losses("plain"));
  }
}

TEST_F(RunMemory, KeepsPlanOnResume) {
  HybridTrainerConfig config = roomy_config();
  const std::size_t plain =
      train_tiny(config, data_, scratch_ / "plain").summary.phase(Phase::kFull).peak_bytes;
  config.memory.plan = "auto";
  config.memory.device_budget.bytes = plain * 8 / 10;
  config.checkpoint.every_steps = 5;
  train_tiny(config, data_, scratch_ / "run");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "run");
  const auto planned = config_of_run({(scratch_ / "run").string()}).memory;
  std::filesystem::remove_all(scratch_ / "run" / "checkpoints" / "step-0000000020");
  config.memory.device_budget.bytes = plain;  // enough without a plan
  std::string console;
  train_tiny(config, data_, scratch_ / "run", true, &console);
  EXPECT_EQ(console.find("planned:"), std::string::npos) << console;
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "run"), wanted);
  const auto kept = config_of_run({(scratch_ / "run").string()}).memory;
  EXPECT_EQ(kept.weights, planned.weights);
  EXPECT_EQ(kept.recompute, planned.recompute);
  EXPECT_EQ(kept.optimizer_state, planned.optimizer_state);
}

TEST_F(RunMemory, RejectsSmallBudgetBeforeCreatingFolder) {
  for (const char* plan : {"off", "auto"}) {
    HybridTrainerConfig config = roomy_config();
    config.memory.plan = plan;
    config.memory.device_budget.bytes = 100000;
    try {
      train_tiny(config, data_, scratch_ / plan);
      FAIL() << "no error";
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("the budget is 100000"), std::string::npos) << text;
      EXPECT_NE(text.find("`hybrid plan`"), std::string::npos) << text;
    }
    EXPECT_FALSE(std::filesystem::exists(scratch_ / plan));
  }
}

TEST_F(RunMemory, DisablesPredictionsWhenHostMemoryIsShort) {
  HybridTrainerConfig config = roomy_config();
  config.memory.host_budget.bytes = 200000;
  std::string console;
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "run", false, &console);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(result.summary.predictions.made, 0);
  EXPECT_LE(result.summary.host_peak_bytes, 200000u);
  EXPECT_NE(
      console.find("no predictions from now on: with them, the run would need more host memory"),
      std::string::npos)
      << console;
}

TEST_F(RunMemory, PlanIncludesBatchesOfLongPrediction) {
  HybridTrainerConfig config = roomy_config();
  config.model.vocabulary = 27;
  config.data.batch_size = 2;
  config.gradient_accumulation.micro_batches = 16;
  config.phases.max_predict_steps = config.phases.skip_backward.trial_steps = 30;
  config.training.steps = 60;
  const MemoryNeed need = simulate_memory(config, {});
  config.memory.host_budget.bytes = need.host_bytes;
  config.memory.device_budget.bytes = need.device_bytes;
  std::string console;
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "run", false, &console);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_GE(result.summary.phase(Phase::kPredict).steps, 30);
  EXPECT_LE(result.summary.host_peak_bytes, need.host_bytes);
  EXPECT_EQ(console.find("no predictions from now on"), std::string::npos) << console;
  EXPECT_EQ(console.find("memory is too small"), std::string::npos) << console;
}

TEST_F(RunMemory, RejectsHostBudgetTooSmallForOffloading) {
  HybridTrainerConfig config = roomy_config();
  config.memory.weights = "host";
  config.memory.host_budget.bytes = 1000;
  try {
    train_tiny(config, data_, scratch_ / "run");
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(std::string(error.what()).find("host memory: the run takes "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
