#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "tests/trainer/late_ranks.h"
#include "tests/trainer/planning/rank_peaks.h"
#include "tests/trainer/rank_faults.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig short_config(const std::string& optimizer, std::int64_t zero) {
  HybridTrainerConfig config = rank_config(optimizer, 4);
  config.model.layers = 2;
  config.distributed.bucket_bytes = 4096;
  config.distributed.zero = zero;
  return config;
}

/// Fails every `stride`th allocation of a step, on one rank after another. If all ranks halve their
/// micro-batches, expects the results of a single rank that halves. Returns the number of halvings.
int halve_at_blocks(const HybridTrainerConfig& config, int ranks, std::int64_t step,
                    std::int64_t stride) {
  SingleCommunicator one;
  const Trained alone = train_with({.rank = 0, .step = step, .blocks = 3}, config, one);
  EXPECT_EQ(alone.micro_batches[step], 2 * config.gradient_accumulation.micro_batches);
  int halved = 0;
  for (std::int64_t i = 0;; ++i) {
    const Fault fault{static_cast<int>(i % ranks), step, i * stride};
    const std::string where = concat("zero ", config.distributed.zero, ", block ", fault.blocks,
                                     " of step ", step, ", rank ", fault.rank);
    std::vector<Trained> all(static_cast<std::size_t>(ranks));
    try {
      run_thread_ranks(ranks, [&](Communicator& rank) {
        all[static_cast<std::size_t>(rank.rank())] = train_with(fault, config, rank);
      });
    } catch (const OutOfMemory&) {
      continue;  // smaller micro-batches would not help
    }
    if (!all[static_cast<std::size_t>(fault.rank)].has_failed) return halved;
    for (const Trained& each : all) {
      EXPECT_EQ(each.micro_batches, alone.micro_batches) << where;
      expect_same(each.outcome, alone.outcome, where);
    }
    ++halved;
  }
}

class RankShortage : public ::testing::TestWithParam<std::int64_t> {};

/// Fails allocations anywhere in forward and backward; smaller micro-batches help only there.
TEST_P(RankShortage, AllRanksHalveAtSameStep) {
  for (const std::int64_t step : {0, 1}) {
    EXPECT_GE(halve_at_blocks(short_config("adamw", GetParam()), 2, step, 13), 5);
  }
}

TEST_P(RankShortage, RanksWithUnevenMicroBatchesHalve) {
  HybridTrainerConfig config = short_config("muon", GetParam());
  config.gradient_accumulation.micro_batches = 5;
  config.memory.recompute = 1;
  config.mixed_precision.warmup = config.mixed_precision.full = "bf16";
  EXPECT_GE(halve_at_blocks(config, 3, 1, 31), 5);
}

/// Predict computes only losses.
TEST_P(RankShortage, AllRanksHalveInPredict) {
  const HybridTrainerConfig config = short_config("adamw", GetParam());
  const std::vector<Phase> phases = train_alone(config).phases;
  const auto predict = std::find(phases.begin(), phases.end(), Phase::kPredict) - phases.begin();
  EXPECT_GE(halve_at_blocks(config, 2, predict + 1, 17), 5);
}

INSTANTIATE_TEST_SUITE_P(Zero, RankShortage, ::testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

/// Peaks by phase of the second of two ranks.
PhasePeaks second_peaks(const HybridTrainerConfig& config) {
  PhasePeaks peaks{};
  run_thread_ranks(2, [&](Communicator& others) {
    RankLinks links(others, config.distributed);
    const PhasePeaks own = rank_peaks(config, links.ranks());
    if (others.rank() == 1) peaks = own;
  });
  return peaks;
}

/// A rank's final weights and its micro-batches by step.
struct LateOutcome {
  std::vector<float> weights;
  std::vector<std::int64_t> micro_batches;
};

/// Trains two ranks, the second of which has at most `bytes`. Saves a checkpoint after
/// `saves_after` steps or resumes from it.
std::vector<LateOutcome> train_late(const HybridTrainerConfig& config, std::size_t bytes,
                                    bool resumes, std::int64_t saves_after,
                                    const TemporaryFolder& folder) {
  std::vector<LateOutcome> outcomes(2);
  run_thread_ranks(2, [&](Communicator& others) {
    RankLinks links(others, config.distributed);
    const bool is_short = others.rank() == 1;
    const Stream stream{
        MemoryPool::create("device", is_short ? std::optional(bytes) : std::nullopt)};
    const auto model = make_model(config.model, resumes ? 2 : 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &links.ranks());
    EXPECT_EQ(resumes, resumes && trainer.resume((folder / "checkpoints").string()));
    LateOutcome& outcome = outcomes[static_cast<std::size_t>(others.rank())];
    while (trainer.steps_done() < kSteps) {
      const Batch batch = step_batch(config, trainer.steps_done(), stream);
      outcome.micro_batches.push_back(trainer.step(batch).micro_batches);
      if (!resumes && trainer.steps_done() == saves_after)
        trainer.save((folder / "checkpoints").string());
    }
    outcome.weights = master_values(*model, stream);
  });
  return outcomes;
}

/// No rank waits then: it halves only its own micro-batches, and all ranks get the same results.
TEST(LateRankShortage, RankHalvesIndependentlyInPredict) {
  for (const std::int64_t local_steps : {0, 3}) {
    HybridTrainerConfig config = late_config();
    config.data.batch_size = 8;
    set_local_steps(config.phases, local_steps);
    HybridTrainerConfig halves = config;
    halves.data.batch_size = 4;
    halves.gradient_accumulation.micro_batches = 8;
    const PhasePeaks whole = second_peaks(config), half = second_peaks(halves);
    const auto of = [](const PhasePeaks& peaks, Phase phase) {
      return peaks[static_cast<std::size_t>(phase)];
    };
    const std::size_t least = std::max({of(whole, Phase::kFull), of(whole, Phase::kCorrect),
                                        of(half, Phase::kPredict)}),
                      most = of(whole, Phase::kPredict);
    ASSERT_LT(least, most) << "local steps " << local_steps;
    const std::size_t bytes = (least + most) / 2;
    const TemporaryFolder folder;
    const auto trained = train_late(config, bytes, false, 14, folder);
    EXPECT_TRUE(trained[0].weights == trained[1].weights);
    EXPECT_EQ(trained[0].micro_batches, std::vector<std::int64_t>(kSteps, 4));
    std::vector<std::int64_t> counts = trained[1].micro_batches;
    EXPECT_GT(std::count(counts.begin(), counts.end(), 8), 3);
    EXPECT_GT(std::count(counts.begin(), counts.end(), 4), 3);
    const auto resumed = train_late(config, bytes, true, 14, folder);
    EXPECT_TRUE(resumed[1].weights == trained[1].weights) << "local steps " << local_steps;
    counts.erase(counts.begin(), counts.begin() + 14);
    EXPECT_EQ(resumed[1].micro_batches, counts);
  }
}

/// Fails while predicted weights and shards of the state are in flight.
TEST(LateRankShortage, RanksKeepSameWeightsWhileShardsArrive) {
  const HybridTrainerConfig config = late_config("adamw", 1);
  int halved = 0;
  for (std::int64_t blocks = 0; blocks < 100; blocks += 9) {
    const Fault fault{.rank = 1, .step = 12, .blocks = blocks};
    std::vector<Trained> all(2);
    try {
      run_thread_ranks(2, [&](Communicator& rank) {
        all[static_cast<std::size_t>(rank.rank())] = train_with(fault, config, rank);
      });
    } catch (const OutOfMemory&) {
      continue;  // smaller micro-batches would not help
    }
    halved += all[1].micro_batches[12] == 8;
    EXPECT_EQ(all[0].micro_batches[12], 4);
    EXPECT_EQ(all[0].outcome.phases[12], Phase::kPredict);
    EXPECT_TRUE(all[0].outcome.weights == all[1].outcome.weights) << "block " << blocks;
  }
  EXPECT_GE(halved, 4);
}

}  // namespace
}  // namespace hybrid_trainer
