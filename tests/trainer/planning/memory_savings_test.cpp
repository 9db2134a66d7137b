#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/trainer/planning/memory_breakdown.h"

#include <gtest/gtest.h>

#include "src/core/clock.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig small_config() {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.model.layers = 4;
  config.model.vocabulary = 300;
  config.data.batch_size = 32;
  config.predict_aware_memory.offload_strategy = "none";
  return config;
}

std::size_t elements_of(const HybridTrainerConfig& config) {
  const Stream nowhere(MemoryPool::create("device", {}, simulated_memory({})));
  std::size_t elements = 0;
  make_model(config.model, 0, nowhere)->visit_parameters([&](const Parameter& parameter) {
    elements += static_cast<std::size_t>(parameter.elements());
  });
  return elements;
}

TEST(MemorySavings, ListsEachEnabledOption) {
  HybridTrainerConfig config = small_config();
  EXPECT_TRUE(simulate_savings(config, {}).empty());
  config.memory.optimizer_state = "host";
  const auto state = simulate_savings(config, {});
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].option, "memory.optimizer_state");
  EXPECT_EQ(state[0].value, "host");
  // AdamW's two moments, except for the weight being updated. Predict also has them.
  const auto moments = static_cast<double>(2 * sizeof(float) * elements_of(config));
  EXPECT_NEAR(static_cast<double>(state[0].device_bytes), moments, 0.05 * moments);
  EXPECT_NEAR(static_cast<double>(state[0].by_phase[2]), moments, 0.05 * moments);
  config.memory.recompute = 1;
  config.gradient_accumulation.micro_batches = 2;
  const auto three = simulate_savings(config, {});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].option, "memory.recompute");
  EXPECT_EQ(three[2].option, "gradient_accumulation.micro_batches");
  for (const MemorySaving& saving : three) EXPECT_GT(saving.device_bytes, 0) << saving.option;
}

TEST(MemorySavings, AsynchronousOptimizerSavesOptimizerState) {
  HybridTrainerConfig config = small_config();
  config.phases.method = "asynchronous_optimizer";
  config.predict_aware_memory.offload_strategy = "cpu_offload";
  const auto found = simulate_savings(config, {});
  ASSERT_EQ(found.size(), 1u) << "the state is on the host in every phase";
  EXPECT_EQ(found[0].option, "phases.method");
  const auto moments = static_cast<std::int64_t>(2 * sizeof(float) * elements_of(config));
  EXPECT_GT(found[0].by_phase[static_cast<std::size_t>(Phase::kFull)], moments * 9 / 10);
}

TEST(MemorySavings, PredictOffloadSavesMostInPredict) {
  HybridTrainerConfig config = small_config();
  config.predict_aware_memory.offload_strategy = "cpu_offload";
  const auto found = simulate_savings(config, {});
  ASSERT_EQ(found.size(), 1u);
  const auto& by_phase = found[0].by_phase;
  EXPECT_EQ(by_phase[static_cast<std::size_t>(Phase::kWarmup)], 0);
  EXPECT_GT(by_phase[static_cast<std::size_t>(Phase::kPredict)],
            by_phase[static_cast<std::size_t>(Phase::kFull)]);
  config.phases.max_predict_steps = 0;
  EXPECT_TRUE(simulate_savings(config, {}).empty()) << "the run never predicts";
}

TEST(MemorySavings, SimulatesLargeModelQuickly) {
  HybridTrainerConfig config = preset_config("gpt2-1558m");
  config.model.vocabulary = 50257;
  config.memory.weights = config.memory.activations = config.memory.optimizer_state = "host";
  config.memory.gradients = "consume";
  config.memory.recompute = 1;
  const auto begin = Clock::now();
  EXPECT_EQ(simulate_savings(config, {}).size(), 5u);
  EXPECT_LT(seconds_since(begin), 30);
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds_since(begin)));
}

}  // namespace
}  // namespace hybrid_trainer
