#include "hybrid_trainer/trainer/memory_simulation.h"
#include "hybrid_trainer/core/batch.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/trainer/model_trainable.h"
#include "src/trainer/planning/step_cost.h"
#include "tests/cuda/cuda_case.h"
#include "tests/support/resident_memory.h"

namespace hybrid_trainer {
namespace {

/// Of updates alone.
std::size_t step_bytes(const HybridTrainerConfig& config) {
  return simulate_memory(config, {DeviceType::kCuda}, SimulatedPhases::kUpdates).device_bytes;
}

HybridTrainerConfig small_config() {
  HybridTrainerConfig config;
  config.model = {.layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 64};
  config.data = {.batch_size = 4, .sequence_length = 16};
  config.gradient_accumulation.micro_batches = 2;
  config.mixed_precision.full = "bf16";
  return config;
}

TEST(MemorySimulation, BoundsActualStepMemory) {
  const HybridTrainerConfig config = small_config();
  const std::size_t bytes = step_bytes(config);
  const Stream stream(make_device_pool(find_device("cuda")));
  stream.pool()->reserve(bytes, "a step");
  const std::size_t fresh = stream.pool()->use().fresh_total;
  EXPECT_LT(fresh, bytes + 4096);
  const auto model_owner = make_model(config.model, 0, stream);
  LanguageModel& model = *model_owner;
  ModelTrainable trainable(model, config, stream, MemoryPool::create("host"),
                           [](const std::string&) {});
  const Stream host = kernels::cpu_stream();
  const Tensor ids = copy_to(kernels::random_ids({8, 16}, 64, 1, host), stream);
  for (Phase phase : {Phase::kWarmup, Phase::kFull, Phase::kCorrect}) {
    trainable.enter_phase(phase);
    trainable.wait_for_gradient(token_batch(ids, ids));
    trainable.apply_gradient();
  }
  EXPECT_EQ(stream.pool()->use().fresh_total, fresh);
}

TEST(MemorySimulation, GrowsWithBatchSize) {
  HybridTrainerConfig config = small_config();
  const std::size_t small = step_bytes(config);
  config.data.batch_size = 64;
  EXPECT_GT(step_bytes(config), small + (1 << 20));
}

TEST(MemorySimulation, AllocatesNoHostMemoryOrFiles) {
  HybridTrainerConfig config = preset_config("gpt2-1558m");
  config.model.vocabulary = 50257;
  config.optimizer.name = "adamw";
  const std::size_t resident = step_bytes(config), before = testing::most_resident_bytes();
  config.memory.optimizer_state = "host";
  config.memory.activations = "file";
  config.memory.folder = "/nonexistent";
  EXPECT_LT(step_bytes(config), resident - (std::size_t{11} << 30));
  EXPECT_LT(testing::most_resident_bytes(), before + (std::size_t{100} << 20));
}

HybridTrainerConfig gpt2_config(const std::string& preset, std::int64_t batch) {
  HybridTrainerConfig config = preset_config(preset);
  config.model.vocabulary = 50257;
  config.data = {.batch_size = batch, .sequence_length = 1024};
  config.gradient_accumulation.micro_batches = 1;
  auto& precision = config.mixed_precision;
  precision.warmup = precision.full = precision.predict = precision.correct = "bf16";
  return config;
}

/// The peak of Predict over that of Full.
double predict_share(const HybridTrainerConfig& config) {
  const MemoryNeed need = simulate_memory(config, {DeviceType::kCuda});
  return static_cast<double>(need.phase(Phase::kPredict).peak_bytes) /
         static_cast<double>(need.phase(Phase::kFull).peak_bytes);
}

TEST(MemorySimulation, PredictUsesSmallFractionOfFull) {
  const double small = predict_share(gpt2_config("gpt2-124m", 64));
  const double large = predict_share(gpt2_config("gpt2-1558m", 32));
  RecordProperty("share_124m_batch_64", std::to_string(small));
  RecordProperty("share_1558m_batch_32", std::to_string(large));
  EXPECT_LT(small, 0.07);
  EXPECT_LT(large, 0.08);  // bf16 copies and what a forward pass takes
}

/// Where backward computes GELU's outputs again, which it keeps by default.
TEST(MemorySimulation, Gpt2BenchmarkWithRecomputeFitsIn19GiB) {
  HybridTrainerConfig config = gpt2_config("gpt2-124m", 64);
  const auto gibibytes = [&] { return static_cast<double>(step_bytes(config)) / (1 << 30); };
  const double kept = gibibytes();
  config.memory.recompute = 0.26;
  const double again = gibibytes();
  RecordProperty("gibibytes", std::to_string(kept));
  RecordProperty("gibibytes_recomputing", std::to_string(again));
  EXPECT_LT(again, 19);
  EXPECT_GT(again, 10);
  EXPECT_NEAR(kept - again, 4.3, 0.1);
}

TEST(RankStepTime, OverlapHidesCommunication) {
  const Device device{DeviceType::kCuda};
  HybridTrainerConfig config = small_config();
  const StepTransfer transfer = simulate_ranks(config, device, 2).transfer;
  const auto exposed_share = [&] {
    const RankStepTime time = estimate_rank_step(
        config, device, 2, transfer, {.flops_per_second = 1e9, .copy_bytes_per_second = 1e10}, 1e9);
    EXPECT_GT(time.sending, 0);
    return time.exposed / time.sending;
  };
  EXPECT_LT(exposed_share(), 0.6);
  config.distributed.overlap = false;
  EXPECT_EQ(exposed_share(), 1);
}

}  // namespace
}  // namespace hybrid_trainer
