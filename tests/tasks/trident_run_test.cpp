#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/data/synthetic/trident_set.h"
#include "src/distributed/host_ranks.h"
#include "src/tasks/network_data.h"
#include "tests/tasks/trident_runs.h"

namespace hybrid_trainer {
namespace {

class TridentRun : public TridentRuns {};

/// The preset's run in docs/RESULTS.md shows each loss separately.
TEST_F(TridentRun, LearnsFromAllSensors) {
  HybridTrainerConfig config = preset();
  config.training.steps = 300;
  train(config, "run");
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  const NetworkScore found = score(run, {}, DType::kF32, stream);
  // A network that sees only the video knows a seventh of the events: 1.38 instead of 0.89 nats.
  EXPECT_LT(found.loss, 1.3 * *found.best_loss) << found.text();
}

TEST_F(TridentRun, RunsThroughAllPhases) {
  const TrainingRunResult result = train(small_config(), "run");
  for (const Phase phase : kAllPhases)
    EXPECT_GT(result.summary.phase(phase).steps, 0) << name_of(phase);
  EXPECT_NE(console_.str().find("the lowest possible losses are events.loss 0.88"),
            std::string::npos)
      << console_.str();
}

TEST_F(TridentRun, ResumesFromAnyStepBitForBit) {
  expect_resumes(small_config(), "skip-backward", {5, 10, 17, 26, 33});
  HybridTrainerConfig late = small_config();
  late.phases = {};
  late.phases.warmup_steps = 8;
  late.phases.method = "asynchronous_optimizer";
  expect_resumes(late, "late", {5, 10, 17, 26, 33});
}

TEST_F(TridentRun, OverRanksMatchesOneRankBitForBit) { expect_bits_of_one_rank(small_config()); }

TEST_F(TridentRun, MemoryOptionsDoNotChangeResult) {
  auto changes = memory_options();
  changes.emplace_back("recomputed-in-part", [](auto& config) {
    config.memory.recompute = 0.4;
    config.parts = {{.pattern = "video.*", .recompute = 1}, {.pattern = "plume.*", .recompute = 0}};
  });
  changes.emplace_back("places", [](auto& config) {
    config.parts = {{.pattern = "fusion.*", .place = "file"},
                    {.pattern = "video.*", .place = "host"}};
  });
  expect_same_bits(small_config(), changes);
}

TEST_F(TridentRun, PresetsMatchDatasetTensors) {
  for (const char* name : {"trident-tiny", "trident"}) {
    const HybridTrainerConfig config = preset_config(name);
    const Stream nowhere(MemoryPool::create("nowhere", {}, simulated_memory({})));
    const auto network = make_network(config.model, 0, nowhere);
    const auto data = std::ranges::find(network_data_kinds(), "trident", &NetworkDataKind::family);
    const auto scenes = data->open({.config = config})->training(config).dataset;
    const Batch drawn = scenes->empty_batch(3, nowhere);
    const Batch wanted = network->empty_batch({.examples = 3}, nowhere);
    ASSERT_EQ(drawn.tensors().size(), wanted.tensors().size());
    for (const NamedTensor& one : wanted.tensors()) {
      EXPECT_EQ(drawn.at(one.name).shape(), one.tensor.shape()) << one.name;
      EXPECT_EQ(drawn.at(one.name).dtype(), one.tensor.dtype()) << one.name;
    }
  }
}

TEST_F(TridentRun, RejectsInconsistentSizes) {
  const auto refusal = [&](const auto& change) {
    HybridTrainerConfig config = small_config();
    change(config);
    try {
      train(config, "refused");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto expect = [&](const auto& change, const char* told) {
    const std::string text = refusal(change);
    EXPECT_NE(text.find(told), std::string::npos) << text;
  };
  expect([](auto& config) { config.model.heads = 3; }, "which does not divide model.width");
  expect([](auto& config) { config.model.trident.fragment_frames = 3; },
         "model.trident.fragment_frames: got 3");
  expect([](auto& config) { config.model.trident.grid = 5; }, "model.trident.grid: got 5");
  expect([](auto& config) { config.model.vocabulary = 100; }, "model.vocabulary: got 100");
  expect([](auto& config) { config.parts = {{.pattern = "fusoin.*", .recompute = 1}}; },
         "fusoin.* matches no part");
}

}  // namespace
}  // namespace hybrid_trainer
