// Runs of a network other than a language model meet all contracts of runs.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_plan.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "memory/quantized_weight.h"
#include "src/distributed/host_ranks.h"
#include "src/files/config_fields.h"
#include "src/tasks/network_task.h"
#include "tests/run/run_contracts.h"
#include "tests/tasks/sensor_network.h"

namespace hybrid_trainer {
namespace {

using testing::sensor_data;
using testing::sensor_registry;

class NetworkRun : public RunContracts {
 protected:
  static HybridTrainerConfig config() {
    HybridTrainerConfig config = tiny_config();
    const HybridTrainerConfig preset = preset_config("sensors-tiny", sensor_registry());
    config.model = preset.model;
    config.data = preset.data;
    config.optimizer = preset.optimizer;
    config.mixed_precision = MixedPrecisionConfig::conservative();
    config.gradient_accumulation.micro_batches = 2;
    config.training.threads = 1;
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config,
                               const std::string& run) const override {
    return {
        .config = config,
        .run = scratch_ / run,
        .command = "test",
        .registry = &sensor_registry(),
        .task = [](const TrainingRunSettings& all) { return network_task(all, sensor_data()); }};
  }
  static PartConfig part(const std::string& pattern) { return {.pattern = pattern}; }
};

bool tells(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST_F(NetworkRun, ApproachesAndReportsBestPossibleLoss) {
  HybridTrainerConfig config = NetworkRun::config();
  config.training.steps = 4000;
  config.data.batch_size = 128;
  const TrainingRunResult result = train(config, "run");
  EXPECT_EQ(result.end, RunEnd::kFinished);
  for (const Phase phase : kAllPhases)
    EXPECT_GT(result.summary.phase(phase).steps, 0) << name_of(phase);
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream, sensor_registry());
  const NetworkScore found = score(run, {}, DType::kF32, stream, sensor_data());
  EXPECT_NEAR(found.loss, *result.summary.final_validation_loss, 1e-6);
  EXPECT_EQ(found.examples, 4096);
  ASSERT_TRUE(found.best_loss);
  EXPECT_NEAR(*found.best_loss, 0.7201, 1e-4) << "-0.8 ln 0.8 - 0.2 ln(0.2/3)";
  EXPECT_LT(found.loss, 1.06 * *found.best_loss);
  ASSERT_EQ(found.measures.size(), 1u);
  EXPECT_EQ(found.measures[0].count, 4096);
  EXPECT_GT(found.measures[0].sum / 4096, 0.72) << "the maximum is 0.8";
  for (const char* told :
       {"Sensors: 2480 parameters", "drawn from the seed", "256 examples per step", "examples/s",
        "the lowest possible loss is 0.72", "class.accuracy 0."})
    EXPECT_TRUE(tells(console_.str(), told)) << told << " in\n" << console_.str();
}

TEST_F(NetworkRun, ResumesFromAnyStepBitForBit) {
  HybridTrainerConfig config = NetworkRun::config();
  expect_resumes(config, "whole", {1, 9, 14, 17, 21, 30});
}

TEST_F(NetworkRun, ResumesAfterInterruptBitForBit) {
  const HybridTrainerConfig config = NetworkRun::config();
  const std::string whole = trained(config, "whole");
  Interruption interruption;
  TrainingRunSettings all = settings(config, "cut");
  all.interruption = &interruption;
  all.on_step = [&](const StepRecord& record) {
    if (record.step != 13) return;
    ::kill(::getpid(), SIGTERM);
    while (!interruption.requested()) std::this_thread::yield();
  };
  EXPECT_EQ(run_training(all, console_).end, RunEnd::kInterrupted);
  train(config, "cut", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"), whole);
}

TEST_F(NetworkRun, OverRanksMatchesOneRankBitForBit) {
  expect_bits_of_one_rank(NetworkRun::config());
}

TEST_F(NetworkRun, RecomputeAndPlacementDoNotChangeResult) {
  expect_same_bits(
      NetworkRun::config(),
      {{"recomputed", [](auto& config) { config.memory.recompute = 1; }},
       {"one-part", [](auto& config) { config.parts = {{.pattern = "fusion.*", .recompute = 1}}; }},
       {"all-but-one",
        [](auto& config) {
          config.memory.recompute = 1;
          config.parts = {{.pattern = "left.*", .recompute = 0, .precision = "fp32"}};
        }},
       {"weights-on-host", [](auto& config) { config.memory.weights = "host"; }},
       {"part-in-file",
        [&](auto& config) {
          config.parts = {{.pattern = "fusion.*", .place = "file"},
                          {.pattern = "left.*", .place = "host"}};
          config.memory.folder = (scratch_ / "").string();
        }},
       {"state-on-host", [](auto& config) { config.optimizer.paged = true; }}});
}

TEST_F(NetworkRun, UsesExactlyPlannedMemory) {
  std::vector<HybridTrainerConfig> configs(5, NetworkRun::config());
  configs[1].parts = {{.pattern = "fusion.*", .recompute = 1}};
  configs[2].parts = {{.pattern = "fusion.*", .lora = 4, .base = "nf4"}};
  configs[3].parts = {{.pattern = "*", .place = "host"}};
  configs[4].phases = PhaseConfig{};
  configs[4].phases.method = "asynchronous_optimizer";
  configs[4].phases.warmup_steps = 8;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const TrainingRunResult result = train(configs[i], concat("run", i));
    const MemoryNeed need =
        simulate_memory(configs[i], {}, SimulatedPhases::kAll, sensor_registry());
    for (const Phase phase : kAllPhases)
      EXPECT_EQ(need.phase(phase).peak_bytes, result.summary.phase(phase).peak_bytes)
          << i << ' ' << name_of(phase);
  }
}

TEST_F(NetworkRun, PlanKeepsDeviceBudget) {
  HybridTrainerConfig config = NetworkRun::config();
  config.data.batch_size = 256;
  const std::size_t all =
      simulate_memory(config, {}, SimulatedPhases::kAll, sensor_registry()).device_bytes;
  config.memory.device_budget = MemorySize{all * 4 / 5};
  config.memory.plan = "auto";
  const TrainingRunResult result = train(config, "planned");
  EXPECT_LE(result.summary.device_peak_bytes, all * 4 / 5);
  EXPECT_TRUE(tells(console_.str(), "planned: ")) << console_.str();
}

TEST_F(NetworkRun, TrainsAdaptersOnSelectedParts) {
  HybridTrainerConfig config = NetworkRun::config();
  config.parts = {{.pattern = "fusion.*", .lora = 4, .base = "nf4"}};
  const TrainingRunResult result = train(config, "run");
  EXPECT_TRUE(tells(console_.str(), "fusion.*: lora 4, base nf4")) << console_.str();
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream, sensor_registry());
  int adapted = 0, quantized = 0;
  run.network->visit_linears([&](Linear& linear) {
    const bool is_fusion = linear.weight().name().starts_with("fusion.");
    EXPECT_EQ(linear.adapter() != nullptr, is_fusion) << linear.weight().name();
    EXPECT_EQ(linear.weight().trainable(), !is_fusion) << linear.weight().name();
    if (!is_fusion) return;
    ++adapted;
    EXPECT_EQ(linear.adapter()->spec().rank, 4);
    quantized += dynamic_cast<QuantizedWeight*>(&linear.weight().storage()) != nullptr ? 1 : 0;
    EXPECT_FALSE(linear.bias()->trainable());
  });
  EXPECT_EQ(adapted, 2);
  EXPECT_EQ(quantized, 2);
  const NetworkScore found = score(run, {}, DType::kF32, stream, sensor_data());
  EXPECT_NEAR(found.loss, *result.summary.final_validation_loss, 1e-6);
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const std::string whole = trained(config, "whole");
  copy_up_to(scratch_ / "whole", scratch_ / "cut", 17, config.training.steps);
  train(config, "cut", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"), whole);
  EXPECT_EQ(trained_over(2, config, "ranks"), whole);
}

TEST_F(NetworkRun, FreezesPartWithOnlyBase) {
  HybridTrainerConfig config = NetworkRun::config();
  config.parts = {{.pattern = "left.*", .base = "bf16"}};
  train(config, "run");
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream, sensor_registry());
  run.network->visit_parameters([&](Parameter& parameter) {
    EXPECT_EQ(parameter.trainable(), !parameter.name().starts_with("left."));
  });
}

TEST_F(NetworkRun, PartOverridesOptimizerAndLearningRate) {
  HybridTrainerConfig config = NetworkRun::config();
  config.parts = {{.pattern = "left.*", .optimizer = "sgd", .learning_rate = 0.0}};
  config.phases.max_predict_steps = 0;
  train(config, "run");
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream, sensor_registry());
  const auto first = make_network(config.model, static_cast<std::uint64_t>(config.training.seed),
                                  stream, sensor_registry());
  std::map<std::string, Tensor> before;
  first->visit_parameters(
      [&](Parameter& parameter) { before[parameter.name()] = parameter.master_in_place(); });
  run.network->visit_parameters([&](Parameter& parameter) {
    const Tensor &was = before.at(parameter.name()), is = parameter.master_in_place();
    const bool same =
        std::equal(was.data<float>(), was.data<float>() + was.elements(), is.data<float>());
    EXPECT_EQ(same, parameter.name().starts_with("left.")) << parameter.name();
  });
}

TEST_F(NetworkRun, RejectsInvalidParts) {
  const auto with = [&](const std::vector<PartConfig>& parts) {
    HybridTrainerConfig config = NetworkRun::config();
    config.parts = parts;
    return refusal(config);
  };
  const auto expect = [&](const std::vector<PartConfig>& parts, const std::string& told) {
    const std::string text = with(parts);
    EXPECT_TRUE(tells(text, told)) << text;
  };
  expect({{.pattern = "middle.*", .lora = 4}},
         "parts: middle.* does not match any of the model's weights");
  expect({{.pattern = "middle.*", .recompute = 1}}, "parts: middle.* matches no part");
  expect({{.pattern = "left.*", .base = "nf4"}, {.pattern = "*.weight", .learning_rate = 1}},
         "parts: left.* and *.weight both match left.weight");
  expect({{.pattern = "head.*", .lora = 4}},
         "parts.head.*.lora: got 4, but it does not match any linear layer");
  expect({{.pattern = "left.*"}}, "parts.left.*: got {}, which has no effect");
  expect({{.pattern = "left.*", .lora = 0}}, "parts.left.*.lora: got 0, but lora.rank is 0");
  expect({{.pattern = "left.*", .recompute = 2}},
         "parts.left.*.recompute: got 2, want a number in [0, 1]");
  expect({{.pattern = "left.*", .precision = "fp8"}}, "parts.left.*.precision: got");
  expect({{.pattern = "left.*", .place = "moon"}}, "parts.left.*.place");
}

TEST_F(NetworkRun, RejectsLanguageModelFeatures) {
  HybridTrainerConfig config = NetworkRun::config();
  config.stages = {{.until = 0.5, .effective_batch = 4}};
  EXPECT_TRUE(tells(refusal(config), "stages: got some, but a sensors is not a language model"));
  TrainingRunSettings all = settings(NetworkRun::config(), "run");
  all.export_to = scratch_ / "out";
  EXPECT_THROW(run_training(all, console_), DataError);
  train(NetworkRun::config(), "run");
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream, sensor_registry());
  try {
    run.model("writing text");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_TRUE(tells(error.what(), "sensors is not a language model: writing text requires"))
        << error.what();
  }
  EXPECT_THROW(make_model(run.config.model, 0, stream, sensor_registry()), ConfigError);
}

TEST_F(NetworkRun, ResumeRejectsChangedParts) {
  HybridTrainerConfig config = NetworkRun::config();
  config.parts = {{.pattern = "fusion.*", .recompute = 1, .lora = 4}};
  train(config, "run");
  config.training.steps = 50;
  config.parts[0].recompute = 0;
  try {
    train(config, "run", true);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(
        tells(error.what(), "parts: the run was saved with {fusion.*: {recompute: 1, lora: 4}}"))
        << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
