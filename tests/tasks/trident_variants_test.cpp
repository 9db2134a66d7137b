// Ways to train a network of several sensors on one device: each learns with the planned memory.
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_plan.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/tasks/trident_runs.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kSteps = 60;

struct Variant {
  const char* name;
  std::function<void(HybridTrainerConfig&)> change;
};

void recompute_parts(HybridTrainerConfig& config) {
  for (const char* part : {"video.*", "plume.*", "vision.*.layers.*", "kinematics.layers.*",
                           "fusion.layers.*", "events.layers.*"})
    config.parts.push_back({.pattern = part, .recompute = 1});
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"plain", [](auto&) {}},
      {"recompute", recompute_parts},
      {"offload",
       [](auto& config) {
         recompute_parts(config);
         config.memory.optimizer_state = "host";
         config.memory.gradients = "consume";
         config.optimizer.clip_norm = 0;
         config.divergence.max_skipped_updates = 0;
       }},
      {"map",
       [](auto& config) {
         recompute_parts(config);
         config.memory.device_map = "events.*=device,fusion.*=host,vision.*=file,*=device";
         config.memory.optimizer_state = "host";
       }},
      {"qlora",
       [](auto& config) {
         recompute_parts(config);
         for (PartConfig& part : config.parts) {
           if (part.pattern.ends_with(".layers.*")) part.lora = 4, part.base = "nf4";
         }
       }},
      {"paged-8-bit",
       [](auto& config) {
         recompute_parts(config);
         config.optimizer.state_bits = 8;
         config.optimizer.paged = true;
       }},
  };
  return all;
}

class TridentVariants : public TridentRuns {
 protected:
  static HybridTrainerConfig config_of(const Variant& variant) {
    HybridTrainerConfig config = preset();
    config.training.steps = kSteps;
    config.phases.warmup_steps = 10;
    config.data.batch_size = 8;
    config.model.trident.held_out = 16;
    config.training.threads = 2;
    variant.change(config);
    return config;
  }
};

TEST_F(TridentVariants, UseExactlyPlannedMemoryAndLearn) {
  std::map<std::string, std::size_t> peaks;
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const HybridTrainerConfig config = config_of(variant);
    const TrainingRunResult result = train(config, variant.name);
    const MemoryNeed need = simulate_memory(config, {});  // with the run's number of threads
    for (const Phase phase : {Phase::kWarmup, Phase::kFull})
      EXPECT_EQ(result.summary.phase(phase).peak_bytes, need.phase(phase).peak_bytes);
    peaks[variant.name] = need.phase(Phase::kFull).peak_bytes;
    const std::vector<StepRecord> records = records_of(scratch_ / variant.name);
    const auto mean = [&](std::size_t begin) {
      double sum = 0;
      for (std::size_t i = begin; i < begin + 10; ++i) sum += records[i].loss;
      return sum / 10;
    };
    EXPECT_LT(mean(kSteps - 10), 0.8 * mean(0));
  }
  EXPECT_LT(peaks["recompute"], peaks["plain"]);
  for (const char* name : {"offload", "map", "qlora", "paged-8-bit"})
    EXPECT_LT(peaks[name], peaks["recompute"]) << name;
}

/// A device with exactly the planned memory runs whole batches; a byte less, smaller micro-batches.
TEST_F(TridentVariants, RunWithinHardDeviceLimit) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    HybridTrainerConfig config = config_of(variant);
    config.training.steps = 12;
    train(config, "free");
    const std::size_t needed = simulate_memory(config, {}).device_bytes;
    config.memory.device_budget.bytes = needed;
    const TrainingRunResult result = train(config, variant.name);
    EXPECT_LE(result.summary.device_peak_bytes, needed);
    EXPECT_EQ(console_.str().find("memory is too small"), std::string::npos) << console_.str();
    std::filesystem::remove_all(scratch_ / "free");
    if (&variant != &variants().front()) continue;
    config.memory.device_budget.bytes = needed - 1;
    EXPECT_LT(train(config, "less").summary.device_peak_bytes, needed);
    EXPECT_NE(console_.str().find("memory is too small for micro-batches of 8"), std::string::npos)
        << console_.str();
  }
}

/// With automatic placement, the device map falls back to the host and then to a file.
TEST_F(TridentVariants, AutoDeviceMapFallsBackToHostAndFile) {
  HybridTrainerConfig config = config_of(variants()[1]);
  config.training.steps = 12;
  config.memory.optimizer_state = "file";
  config.memory.weights = "file";
  const std::size_t least = simulate_memory(config, {}).device_bytes;
  config.memory.weights = "device";
  const std::size_t most = simulate_memory(config, {}).device_bytes;
  config.memory.device_map = "auto";
  config.memory.device_budget.bytes = least + (most - least) / 3;
  config.memory.host_budget.bytes = (most - least) / 3;
  const TrainingRunResult result = train(config, "mapped");
  EXPECT_LE(result.summary.device_peak_bytes, config.memory.device_budget.bytes);
  const StepRecord last = records_of(scratch_ / "mapped").back();
  EXPECT_GT(last.host_memory.live_total, 0u);
  EXPECT_NE(console_.str().find("file"), std::string::npos) << console_.str();
}

/// The large preset on a simulated device of 39 GiB.
TEST_F(TridentVariants, LargePresetFitsIn39GiB) {
  HybridTrainerConfig config = preset_config("trident");
  config.phases.max_predict_steps = 0;
  const auto gibibytes = [&](const Variant& variant) {
    HybridTrainerConfig changed = config;
    variant.change(changed);
    const MemoryNeed need = simulate_memory(changed, {}, SimulatedPhases::kFirstUpdate);
    return static_cast<double>(need.device_bytes) / (std::size_t{1} << 30);
  };
  EXPECT_GT(gibibytes(variants()[0]), 39);
  for (std::size_t i = 1; i < variants().size(); ++i)
    EXPECT_LT(gibibytes(variants()[i]), 39) << variants()[i].name;
}

}  // namespace
}  // namespace hybrid_trainer
