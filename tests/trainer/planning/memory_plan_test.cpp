#include "hybrid_trainer/trainer/memory_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/files/config_fields.h"
#include "src/trainer/planning/step_cost.h"

namespace hybrid_trainer {
namespace {

constexpr StepRates kRates{.flops_per_second = 1e11, .copy_bytes_per_second = 1e10};

HybridTrainerConfig four_layers() {
  HybridTrainerConfig config;
  config.model = {.layers = 4, .heads = 4, .width = 128, .context = 128, .vocabulary = 512};
  config.data = {.batch_size = 8, .sequence_length = 128};
  config.optimizer.name = "adamw";
  return config;
}

MemoryPlan plan(const HybridTrainerConfig& config, const MemoryBudgets& budgets,
                const StepRates& rates = kRates) {
  return plan_memory(config, {}, budgets, rates);
}

TEST(MemoryPlan, KeepsConfigThatFits) {
  const MemoryPlan found = plan(four_layers(), {.device = std::size_t{10} << 30});
  EXPECT_TRUE(found.fits);
  EXPECT_TRUE(found.options.empty());
  EXPECT_EQ(found.expected_slowdown, 1);
  EXPECT_EQ(found.missing_bytes, 0u);
  EXPECT_EQ(found.need.device_bytes, simulate_memory(four_layers(), {}).device_bytes);
}

TEST(MemoryPlan, SetsOptionsToFitEachBudget) {
  const std::size_t all = simulate_memory(four_layers(), {}).device_bytes;
  double slowdown = 1;
  for (const std::size_t percent : {90, 60, 40, 25}) {
    const std::size_t budget = all / 100 * percent;
    const MemoryPlan found = plan(four_layers(), {.device = budget});
    ASSERT_TRUE(found.fits) << percent;
    EXPECT_LE(found.need.device_bytes, budget) << percent;
    EXPECT_FALSE(found.options.empty());
    EXPECT_GE(found.expected_slowdown, slowdown) << percent;
    slowdown = found.expected_slowdown;
    HybridTrainerConfig as_set = four_layers();
    for (const PlannedOption& option : found.options) set_field(as_set, option.key, option.value);
    EXPECT_EQ(config_json(as_set), config_json(found.config)) << percent;
    EXPECT_EQ(simulate_memory(as_set, {}).device_bytes, found.need.device_bytes) << percent;
    EXPECT_EQ(as_set.optimizer.state_bits, 32) << "lossy";
  }
}

HybridTrainerConfig sensors() {
  HybridTrainerConfig config = preset_config("trident-tiny");
  config.phases.max_predict_steps = 0;
  return config;
}

/// Ratio of the measured operations per second in a plan to those of the network's real steps.
double rate_over_real(const HybridTrainerConfig& config) {
  const Stream stream(make_device_pool());
  const auto network = make_network(config.model, 0, stream);
  const Batch batch = network->empty_batch({.examples = config.data.batch_size}, stream);
  for (const NamedTensor& one : batch.tensors()) fill_zero(one.tensor, stream);
  double ratio = 1e9;
  const auto distance = [](double one) { return std::fabs(std::log(one)); };
  for (int i = 0; i < 6 && distance(ratio) > std::log(1.2); ++i) {  // the machine may be busy
    const double real =
        network->step_flops(batch) / measure_gradient(*network, config, batch, stream);
    const double next = measure_step_rates(config, stream).flops_per_second / real;
    if (distance(next) < distance(ratio)) ratio = next;
  }
  return ratio;
}

/// Convolutions and transformers run at a different rate than a decoder block of the same width.
TEST(MemoryPlan, MeasuresNetworkSpeedOnItsOwnParts) {
  HybridTrainerConfig config = gradient_only(sensors());
  EXPECT_NEAR(std::log(rate_over_real(config)), 0, std::log(1.5));
  config.data.batch_size = 2;
  config.model.heads = 4;
  config.model.width = 256;
  config.model.layers = config.model.trident.vision_layers = 3;
  config.model.trident.kinematic_layers = config.model.trident.fusion_layers = 3;
  config.model.trident.frames = 16;
  config.model.trident.fragment_frames = 8;
  config.model.trident.video_size = config.model.trident.image_size = 64;
  config.model.trident.video_width = 32;
  EXPECT_NEAR(std::log(rate_over_real(config)), 0, std::log(1.5));
}

/// Recomputing named parts costs what memory.recompute does.
TEST(MemoryPlan, CountsRecomputationOfParts) {
  const auto slowdown = [](const char* pattern) {
    HybridTrainerConfig config = sensors();
    if (*pattern != 0) config.parts.push_back({.pattern = pattern, .recompute = 1});
    const MemoryPlan found = plan(config, {});
    EXPECT_TRUE(found.options.empty()) << pattern;
    return found.expected_slowdown;
  };
  EXPECT_EQ(slowdown(""), 1);
  const double fusion = slowdown("fusion.*"), all = slowdown("*");
  EXPECT_GT(fusion, 1.01);
  EXPECT_GT(all, fusion + 0.05);
  EXPECT_LT(all, 1.5);
  HybridTrainerConfig config = sensors();
  config.memory.recompute = 1;
  EXPECT_NEAR(all, plan(config, {}).expected_slowdown, 0.02);
}

/// Orthogonalization makes a step longer, so an option's relative cost is smaller.
TEST(MemoryPlan, CountsOptimizerMatrixProducts) {
  HybridTrainerConfig config = four_layers();
  const auto slowdown = [&] {
    config.memory.activations = "host";
    return plan(config, {}).expected_slowdown;
  };
  config.optimizer.name = "lion";  // its state is Muon's, except for vectors
  const double plain = slowdown();
  config.optimizer.name = "muon";
  const double whole = slowdown();
  config.optimizer.orthogonalization_period = 5;
  const double blocks = slowdown();
  EXPECT_GT(plain, blocks);
  EXPECT_GT(blocks, whole);
  EXPECT_GT(whole, 1);
}

TEST(MemoryPlan, KeepsEffectiveBatchSize) {
  const HybridTrainerConfig config = four_layers();
  const std::size_t all = simulate_memory(config, {}).device_bytes;
  const MemoryPlan found = plan(config, {.device = all / 3, .host = 10000000});
  ASSERT_TRUE(found.fits);
  EXPECT_EQ(found.config.data.batch_size * found.config.gradient_accumulation.micro_batches,
            config.data.batch_size * config.gradient_accumulation.micro_batches);
}

TEST(MemoryPlan, RespectsHostBudget) {
  const HybridTrainerConfig config = four_layers();
  const std::size_t all = simulate_memory(config, {}).device_bytes;
  const MemoryPlan roomy = plan(config, {.device = all / 4});
  ASSERT_TRUE(roomy.fits);
  ASSERT_GT(roomy.need.host_bytes, 0u);
  const MemoryPlan found = plan(config, {.device = all / 4, .host = roomy.need.host_bytes / 4});
  EXPECT_FALSE(found.fits);
  EXPECT_GT(found.missing_bytes, 0u);
  EXPECT_EQ(found.largest_batch, 0);
}

TEST(MemoryPlan, UsesFilesWhenHostIsFull) {
  HybridTrainerConfig config = four_layers();
  const std::size_t all = simulate_memory(config, {}).device_bytes;
  StepRates rates = kRates;
  rates.read_bytes_per_second = rates.write_bytes_per_second = 1e9;
  const MemoryBudgets budgets{.device = all / 4, .host = all};
  EXPECT_EQ(plan(config, budgets, rates).need.disk_bytes, 0u) << "files are slower";
  const MemoryBudgets no_host{.device = all / 4, .host = 100000};
  const MemoryPlan found = plan(config, no_host, rates);
  ASSERT_TRUE(found.fits);
  EXPECT_GT(found.need.disk_bytes, 0u);
  EXPECT_FALSE(plan(config, {no_host.device, no_host.host, 1000}, rates).fits);
}

TEST(MemoryPlan, UsesLossyOptionsOnlyIfAllowed) {
  HybridTrainerConfig config = four_layers();
  config.phases.max_predict_steps = 0;
  const std::size_t all = simulate_memory(config, {}).device_bytes;
  HybridTrainerConfig small = config;
  small.optimizer.state_bits = 8;
  small.memory.recompute = 1;
  // The size with the least memory: more micro-batches need sums but have fewer activations.
  std::size_t least = simulate_memory(small, {}).device_bytes;
  for (const std::int64_t micro_batches : {2, 4, 8}) {
    small.gradient_accumulation.micro_batches = micro_batches;
    small.data.batch_size = 8 / micro_batches;
    least = std::min(least, simulate_memory(small, {}).device_bytes);
  }
  const MemoryBudgets budgets{.device = least, .host = 1000};
  ASSERT_LT(*budgets.device, all);
  EXPECT_FALSE(plan(config, budgets).fits);
  config.memory.allow_lossy = true;
  const MemoryPlan found = plan(config, budgets);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.config.optimizer.state_bits, 8);
}

TEST(MemoryPlan, ProducesOnlyValidConfigs) {
  for (const char* name : {"adafactor", "adam_mini", "sgd", "muon"}) {
    HybridTrainerConfig config = four_layers();
    config.model.layers = 2;
    config.optimizer.name = name;
    config.optimizer.groups.push_back({.match = "embedding", .name = "sgd"});
    config.memory.allow_lossy = true;
    const std::size_t all = simulate_memory(config, {}).device_bytes;
    for (const std::size_t percent : {60, 10}) {
      const MemoryPlan found = plan(config, {.device = all / 100 * percent, .host = all / 8});
      EXPECT_TRUE(found.config.problems().empty()) << name << ' ' << percent;
    }
  }
}

TEST(MemoryPlan, SharedBudgetCountsDeviceAndHost) {
  const HybridTrainerConfig config = four_layers();
  const std::size_t all = simulate_memory(config, {}).device_bytes;
  const MemoryPlan apart = plan(config, {.device = all / 3});
  ASSERT_TRUE(apart.fits);
  ASSERT_GT(apart.need.host_bytes, 0u);
  const MemoryPlan found = plan(config, {.device = all / 3, .both = all / 2});
  EXPECT_FALSE(found.fits);
  EXPECT_GT(found.missing_bytes, 0u);
  const MemoryPlan roomy = plan(config, {.device = all / 3, .both = 3 * all});
  EXPECT_TRUE(roomy.fits);
}

TEST(MemoryPlan, KeepsConfiguredMemorySavings) {
  HybridTrainerConfig config = four_layers();
  config.memory.recompute = 0.6;
  config.memory.activations = "host";
  config.memory.weights = "host";
  const MemoryPlan found =
      plan(config, {.device = simulate_memory(config, {}).device_bytes * 8 / 10});
  ASSERT_TRUE(found.fits);
  EXPECT_GE(found.config.memory.recompute, 0.6);
  EXPECT_EQ(found.config.memory.activations, "host");
  EXPECT_EQ(found.config.memory.weights, "host");
}

TEST(MemoryPlan, AutoMapFillsDeviceThenHostThenFile) {
  HybridTrainerConfig config = four_layers();
  config.phases.max_predict_steps = 0;
  const auto bytes_at = [&](const char* map) {
    config.memory.device_map = map;
    return simulate_memory(config, {}, SimulatedPhases::kUpdates);
  };
  const MemoryNeed all = bytes_at("*=device"), none = bytes_at("*=host");
  config.memory.device_map = "auto";
  const auto chosen = [&](std::size_t device, std::optional<std::size_t> host) {
    const MemoryPlan found = plan(config, {.device = device, .host = host});
    EXPECT_TRUE(found.fits);
    EXPECT_LE(found.need.device_bytes, device);
    return found.config.memory.device_map;
  };
  EXPECT_EQ(chosen(all.device_bytes, {}), "*=device");
  const std::size_t half = (all.device_bytes + none.device_bytes) / 2;
  const std::string map = chosen(half, {});
  EXPECT_TRUE(map.starts_with("w*e.*=device,")) << map;
  EXPECT_TRUE(map.ends_with(",*=host")) << map;
  const std::string with_file = chosen(half, none.host_bytes / 8);
  EXPECT_TRUE(with_file.ends_with(",*=file")) << with_file;
}

TEST(MemoryPlan, SmallHostBudgetDisablesPredict) {
  const HybridTrainerConfig config = four_layers();
  HybridTrainerConfig small_host = config;
  small_host.memory.host_budget.bytes = 100000;
  EXPECT_GT(simulate_memory(config, {}).phase(Phase::kPredict).peak_bytes, 0u);
  const MemoryNeed need = simulate_memory(small_host, {});
  EXPECT_EQ(need.phase(Phase::kPredict).peak_bytes, 0u);
  EXPECT_LE(need.host_bytes, 100000u);
}

TEST(MemoryPlan, ReportsLargestBatch) {
  const HybridTrainerConfig config = four_layers();
  const std::size_t budget = 4 * simulate_memory(config, {}).device_bytes;
  HybridTrainerConfig largest = config;
  largest.data.batch_size = plan(config, {.device = budget}).largest_batch;
  const auto bytes = [&] {
    return simulate_memory(largest, {}, SimulatedPhases::kUpdates).device_bytes;
  };
  EXPECT_LE(bytes(), budget);
  largest.data.batch_size += largest.data.batch_size / 25;
  EXPECT_GT(bytes(), budget);
}

TEST(MemoryPlan, DoesNotOffloadWithCudaGraphs) {
  HybridTrainerConfig config = four_layers();
  config.training.cuda_graphs = true;
  const std::size_t all = simulate_memory(config, {}).device_bytes;
  const MemoryPlan found = plan(config, {.device = all / 2});
  EXPECT_EQ(found.config.memory.activations, "device");
  EXPECT_EQ(found.config.memory.weights, "device");
  EXPECT_TRUE(found.config.problems().empty());
}

TEST(StepRates, MeasuresFileRateOnlyWithFolder) {
  const Stream stream(MemoryPool::create("device"));
  HybridTrainerConfig config = four_layers();
  const StepRates here = measure_step_rates(config, stream);
  EXPECT_GT(here.flops_per_second, 1e8);
  EXPECT_GT(here.copy_bytes_per_second, 1e8);
  EXPECT_EQ(here.write_bytes_per_second, 0) << "no folder is configured";
  EXPECT_FALSE(free_disk_space(config));
  config.memory.folder = std::filesystem::temp_directory_path().string();
  EXPECT_GT(measure_step_rates(config, stream).write_bytes_per_second, 1e6);
  EXPECT_TRUE(free_disk_space(config));
}

TEST(StepRates, MeasuresBlocksOfAnyHeadShape) {
  const Stream stream(MemoryPool::create("device"));
  for (const std::int64_t kv_heads : {0, 1, 8, 32}) {
    HybridTrainerConfig config = four_layers();
    config.model.family = "llama";
    config.model.width = 1024;
    config.model.heads = 32;  // like Llama 3.1
    config.model.kv_heads = kv_heads;
    config.model.head_size = 34;
    config.model.intermediate_size = 3584;
    EXPECT_GT(measure_step_rates(config, stream).flops_per_second, 1e8) << kv_heads;
  }
}

TEST(StepRates, MeasuresSingleEncoderBlock) {
  const Stream stream(MemoryPool::create("device"));
  HybridTrainerConfig config = four_layers();
  config.model = {.family = "whisper", .layers = 32, .heads = 20, .width = 1280, .context = 448};
  config.data.batch_size = 16;
  config.data.sequence_length = 64;
  EXPECT_GT(measure_step_rates(config, stream).flops_per_second, 1e8);
  EXPECT_LT(stream.pool()->use().peak_total, std::size_t{400} << 20)
      << "all blocks would take 6 GB";
}

TEST(StepRates, MeasuresRecurrentBlocks) {
  const Stream stream(MemoryPool::create("device"));
  HybridTrainerConfig config = four_layers();
  config.data.sequence_length = 16;
  for (const auto& [family, name] :
       {std::pair("granitemoehybrid", "granite-4.0-h-1b"), {"qwen3_5", "qwen3_5-tiny"}}) {
    for (const ModelPreset& preset : find_family(family).presets) {
      if (preset.name != name) continue;
      config.model = preset.model;
      EXPECT_GT(measure_step_rates(config, stream).flops_per_second, 1e6) << name;
    }
  }
}

TEST(StepRates, MeasuresAsynchronousRunWithStages) {
  const Stream stream(MemoryPool::create("device"));
  HybridTrainerConfig config = four_layers();
  config.optimizer.name = "muon";
  config.phases.method = "asynchronous_optimizer";
  StageConfig first;
  first.until = 0.5;
  first.orthogonalization_period = 5;
  config.stages.push_back(first);
  EXPECT_GT(measure_step_rates(config, stream).flops_per_second, 1e8);
  config.phases.asynchronous_optimizer.exact_state = "file";
  EXPECT_GT(measure_step_rates(config, stream).write_bytes_per_second, 1e6);
}

}  // namespace
}  // namespace hybrid_trainer
