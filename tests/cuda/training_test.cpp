#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "tests/cuda/orders.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// A config with one fixed precision, because "auto" differs on a CPU.
HybridTrainerConfig fixed_config() {
  HybridTrainerConfig config = tiny_config();
  config.mixed_precision = MixedPrecisionConfig::conservative();
  return config;
}

/// Complete runs through all phases with the code of `hybrid train`.
class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(scratch_ / "data"); }

  std::filesystem::path train(HybridTrainerConfig config, const std::string& device,
                              const std::string& name, bool resume = false) {
    config.device = device;
    const auto run = scratch_ / name;
    train_tiny(config, scratch_ / "data", run, resume);
    return run;
  }

  /// Expects steps replayed from a recording to have the bits of `launched`, which ran without one.
  void expect_recorded_like(HybridTrainerConfig config, const std::filesystem::path& launched) {
    config.training.cuda_graphs = true;
    const auto recorded = train(config, "cuda", launched.filename().string() + " recorded");
    EXPECT_EQ(newest_checkpoint_digest(recorded), newest_checkpoint_digest(launched)) << launched;
  }

  void expect_as_on_the_processor_recorded_or_not(const HybridTrainerConfig& config,
                                                  double tolerance) {
    const auto wanted = records_of(train(config, "cpu", "cpu"));
    const auto launched = train(config, "cuda", "launched");
    const auto found = records_of(launched);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(found[i].tokens, wanted[i].tokens);
      EXPECT_NEAR(found[i].loss, wanted[i].loss, tolerance * wanted[i].loss) << i;
    }
    expect_recorded_like(config, launched);
  }

  TemporaryFolder scratch_;
};

TEST_F(CudaTraining, MatchesCpuInAllPhases) {
  const auto wanted = records_of(train(fixed_config(), "cpu", "cpu"));
  const auto found = records_of(train(fixed_config(), "cuda", "cuda"));
  ASSERT_EQ(found.size(), wanted.size());
  std::array<int, 4> steps{};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].phase, wanted[i].phase) << "step " << i + 1;
    EXPECT_NEAR(found[i].loss, wanted[i].loss, loss_tolerance() * wanted[i].loss)
        << "step " << i + 1;
    ++steps[static_cast<std::size_t>(found[i].phase)];
  }
  for (const int count : steps) EXPECT_GT(count, 0);
  EXPECT_NEAR(*found.back().validation_loss, *wanted.back().validation_loss, 10 * loss_tolerance());
}

TEST_F(CudaTraining, EightBitStateMatchesCpu) {
  HybridTrainerConfig config = fixed_config();
  config.model.width = 32;  // the two feed-forward matrices then have 4,096 elements
  config.training.steps = 24;
  config.optimizer.state_bits = 8;
  const auto wanted = records_of(train(config, "cpu", "cpu"));
  const auto found = records_of(train(config, "cuda", "cuda"));
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].phase, wanted[i].phase) << "step " << i + 1;
    // A rounding difference can change the code of a moment.
    EXPECT_NEAR(found[i].loss, wanted[i].loss, 1e-3 * wanted[i].loss) << "step " << i + 1;
  }
}

TEST_F(CudaTraining, PredictKeepsOptimizerStateOffDevice) {
  HybridTrainerConfig config = fixed_config();
  config.predict_aware_memory.async_restore_lookahead = 1;
  const auto records = records_of(train(config, "cuda", "cuda"));
  const auto state = static_cast<std::size_t>(MemoryKind::kOptimizerState);
  std::size_t in_full = 0, in_predict = SIZE_MAX;
  for (const StepRecord& record : records) {
    if (record.phase == Phase::kFull) in_full = record.device_memory.live[state];
    if (record.phase == Phase::kPredict)
      in_predict = std::min(in_predict, record.device_memory.live[state]);
  }
  EXPECT_GT(in_full, 0u);
  EXPECT_EQ(in_predict, 0u);
}

TEST_F(CudaTraining, RepeatsBitForBit) {
  HybridTrainerConfig config = fixed_config();
  config.model.dropout = 0.1;
  config.mixed_precision.full = "bf16";
  std::string first;
  int count = 0;
  in_several_orders([&] {
    const std::string digest =
        newest_checkpoint_digest(train(config, "cuda", concat("run", count++)));
    if (first.empty()) first = digest;
    EXPECT_EQ(digest, first);
  });
}

TEST_F(CudaTraining, LearningRateFinderMatchesCpu) {
  HybridTrainerConfig config = fixed_config();
  config.training.steps = 24;
  config.phases.warmup_steps = 20;
  config.optimizer.learning_rate = 1e-5;
  config.learning_rate_finder.mode = "warmup";
  const auto wanted = records_of(train(config, "cpu", "cpu"));
  const auto found = records_of(train(config, "cuda", "cuda"));
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_GT(*wanted.back().rate_factor, 1);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].rate_factor, wanted[i].rate_factor) << "step " << i + 1;
    EXPECT_NEAR(found[i].loss, wanted[i].loss, loss_tolerance() * wanted[i].loss);
  }
}

/// A recording contains the loss scale, which changes after an overflow and at certain steps.
TEST_F(CudaTraining, LowPrecisionProductsMatchCpu) {
  HybridTrainerConfig config = fixed_config();
  config.training.steps = 24;
  for (const auto& [precision, tolerance] : {std::pair("fp16", 2e-3), std::pair("fp8", 2e-2)}) {
    config.mixed_precision = MixedPrecisionConfig::all(precision);
    config.mixed_precision.loss_scale = 1 << 24;
    config.mixed_precision.loss_scale_growth_steps = 3;
    config.model.initializer_range = 0.3;
    const auto wanted = records_of(train(config, "cpu", concat("cpu ", precision)));
    const auto launched = train(config, "cuda", concat("launched ", precision));
    const auto found = records_of(launched);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(found[i].loss, wanted[i].loss, tolerance * wanted[i].loss) << precision << i;
      EXPECT_EQ(found[i].loss_scale, wanted[i].loss_scale) << i;
    }
    EXPECT_EQ(found.back().overflows > 0, precision == std::string("fp16"));
    expect_recorded_like(config, launched);
  }
}

HybridTrainerConfig late_config() {
  HybridTrainerConfig config = fixed_config();
  config.phases.method = "asynchronous_optimizer";
  config.phases.warmup_steps = 3;
  config.phases.full_steps = 2;
  config.phases.max_predict_steps = 6;
  config.optimizer.orthogonalization_period = 3;
  return config;
}

/// A short run, for the race check.
TEST_F(CudaTraining, ReportsLagOfDelayedUpdates) {
  HybridTrainerConfig config = late_config();
  config.training.steps = 12;
  std::int64_t late = 0;
  for (const StepRecord& record : records_of(train(config, "cuda", "cuda"))) late += *record.lag;
  EXPECT_EQ(late, 5);
}

TEST_F(CudaTraining, DelayedUpdatesMatchCpuInAnyStreamOrder) {
  HybridTrainerConfig config = late_config();
  config.training.steps = 20;
  struct Rule {
    const char *optimizer, *device_side;
    std::int64_t lag;
  };
  for (const Rule& rule : {Rule{"adamw", "anticipated", 1}, Rule{"muon", "sketch", 2},
                           Rule{"lion", "anticipated", 2}, Rule{"muon", "selective", 1}}) {
    config.optimizer.name = rule.optimizer;
    config.phases.asynchronous_optimizer.device_side = rule.device_side;
    config.phases.asynchronous_optimizer.delay = rule.lag;
    const std::string name = concat(rule.optimizer, rule.device_side);
    const auto wanted = records_of(train(config, "cpu", name + "cpu"));
    std::string first;
    int count = 0;
    in_several_orders([&] {
      const auto run = train(config, "cuda", concat(name, count++));
      const auto found = records_of(run);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found[i].phase, wanted[i].phase) << name << " step " << i + 1;
        EXPECT_EQ(found[i].lag, wanted[i].lag);
        EXPECT_NEAR(found[i].loss, wanted[i].loss, 1e-2 * wanted[i].loss) << name << " " << i + 1;
      }
      if (first.empty()) first = newest_checkpoint_digest(run);
      EXPECT_EQ(newest_checkpoint_digest(run), first) << name;
    });
  }
}

TEST_F(CudaTraining, RecordedStepsMatchLaunchedSteps) {
  HybridTrainerConfig config = fixed_config();
  config.model.dropout = 0.1;
  config.gradient_accumulation.micro_batches = 2;
  const auto launched = train(config, "cuda", "launched");
  config.training.cuda_graphs = true;
  const int before = recordings_replayed();
  const auto recorded = train(config, "cuda", "recorded");
  EXPECT_EQ(newest_checkpoint_digest(recorded), newest_checkpoint_digest(launched));
  if (before >= 0) {
    EXPECT_GT(recordings_replayed(), before + 10);
  }
}

/// Each batch has the same number of targets, so one recording divides all losses.
TEST_F(CudaTraining, RecordedMaskedStepsMatchLaunchedSteps) {
  HybridTrainerConfig config = fixed_config();
  config.model.family = "semiseparable";
  config.model.bidirectional = true;
  config.model.mixers = "tb";
  config.model.layers = 2;
  config.objective = "masked";
  config.training.steps = 6;
  expect_recorded_like(config, train(config, "cuda", "launched"));
}

/// The table of angles is made once, before the recording.
TEST_F(CudaTraining, RecordedRotaryStepsMatchLaunchedSteps) {
  HybridTrainerConfig config = fixed_config();
  config.model.family = "llama";
  config.training.steps = 10;
  expect_recorded_like(config, train(config, "cuda", "launched"));
}

/// An evaluation between recorded steps may enlarge the table or fill it with different angles.
TEST_F(CudaTraining, EvaluationsDoNotDisturbRecordedRotarySteps) {
  HybridTrainerConfig config = fixed_config();
  config.model.family = "llama";
  config.training.steps = 16;
  config.training.evaluate_every_steps = 4;
  config.phases.max_predict_steps = 0;
  config.stages = {{.until = 0.9, .sequence_length = 4}};
  expect_recorded_like(config, train(config, "cuda", "shorter"));
  config.stages = {};
  config.model.rope_scaling = {.type = "dynamic", .factor = 2, .original_context = 4};
  expect_recorded_like(config, train(config, "cuda", "dynamic"));
}

TEST_F(CudaTraining, ScheduleStagesMatchCpu) {
  HybridTrainerConfig config = fixed_config();
  config.stages = {{.until = 0.3, .sequence_length = 4, .effective_batch = 8},
                   {.until = 0.6, .effective_batch = 2}};
  expect_as_on_the_processor_recorded_or_not(config, loss_tolerance());
}

TEST_F(CudaTraining, BlockOrthogonalizationMatchesCpu) {
  HybridTrainerConfig config = fixed_config();
  config.optimizer.name = "muon";
  config.optimizer.orthogonalization_period = 3;
  config.stages = {{.until = 0.3, .orthogonalization_period = 2}};
  expect_as_on_the_processor_recorded_or_not(config, 10 * loss_tolerance());
}

/// A GELU recomputed in backward can differ in its last bits from a fused one. The compared runs
/// therefore all recompute it or contain no GELU.
TEST_F(CudaTraining, LosslessMemoryOptionsDoNotChangeBits) {
  HybridTrainerConfig config = fixed_config();
  config.training.steps = 24;
  config.model.layers = 2;
  config.model.dropout = 0.1;
  config.memory.recompute = 0.5;
  const auto plain = newest_checkpoint_digest(train(config, "cuda", "plain"));
  HybridTrainerConfig gated = config;
  gated.model.family = "llama";
  const auto gated_plain = newest_checkpoint_digest(train(gated, "cuda", "gated"));
  gated.memory.recompute = 0;
  EXPECT_EQ(newest_checkpoint_digest(train(gated, "cuda", "kept")), gated_plain);
  for (const char* where : {"host", "file"}) {
    HybridTrainerConfig moved = config;
    moved.memory.activations = where;
    const auto run = train(moved, "cuda", concat("activations_", where));
    EXPECT_EQ(newest_checkpoint_digest(run), plain) << "activations: " << where;
    moved.memory.optimizer_state = where;
    const auto both = train(moved, "cuda", concat("both_", where));
    EXPECT_EQ(newest_checkpoint_digest(both), plain) << "and optimizer_state: " << where;
    const auto state = static_cast<std::size_t>(MemoryKind::kOptimizerState);
    for (const StepRecord& record : records_of(both))
      EXPECT_EQ(record.device_memory.live[state], 0u) << record.step;
  }
}

/// The failed start may have had too little memory to time the algorithms.
TEST_F(CudaTraining, DiscardsAlgorithmsOfFailedStart) {
  HybridTrainerConfig config = fixed_config();
  config.training.steps = 2;
  const auto left = scratch_ / "run" / "algorithms" / "left";
  std::filesystem::create_directories(left.parent_path());
  std::ofstream(left) << "untimed";
  train(config, "cuda", "run");
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(CudaTraining, ResumesBitForBit) {
  namespace fs = std::filesystem;
  HybridTrainerConfig config = fixed_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const fs::path whole = train(config, "cuda", "whole");
  for (const int stop : {7, 16, 21, 29}) {
    const fs::path run = scratch_ / concat("stopped", stop);
    fs::copy(whole, run, fs::copy_options::recursive);
    for (int step = stop + 1; step <= 40; ++step) {
      std::string name = std::to_string(step);
      name.insert(0, 10 - name.size(), '0');
      fs::remove_all(run / "checkpoints" / ("step-" + name));
    }
    train(config, "cuda", run.filename(), true);
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(whole)) << stop;
  }
}

}  // namespace
}  // namespace hybrid_trainer
