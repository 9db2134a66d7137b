#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/cuda/nccl_rank_peaks.h"
#include "tests/cuda/orders.h"
#include "tests/trainer/rank_faults.h"

namespace hybrid_trainer {
namespace {

/// A model with matrices of more than one chunk and a fixed precision: "auto" differs on CUDA.
HybridTrainerConfig config_over_devices(std::int64_t micro_batches) {
  HybridTrainerConfig config = rank_config("adamw", micro_batches);
  config.model.width = 80;
  config.mixed_precision = MixedPrecisionConfig::conservative();
  return config;
}

std::vector<RankOutcome> train_over_devices(const HybridTrainerConfig& config, int ranks) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  run_nccl_ranks(ranks, [&](Communicator& rank, Device device) {
    outcomes[static_cast<std::size_t>(rank.rank())] = train_rank(config, rank, device);
  });
  return outcomes;
}

/// NCCL computes no sums, and each kernel has a fixed order of addition.
TEST(RanksOnDevices, MatchSingleRankBitForBit) {
  const RankOutcome alone = train_alone(config_over_devices(5), {DeviceType::kCuda, 0});
  for (const Phase phase : kAllPhases)
    EXPECT_TRUE(std::count(alone.phases.begin(), alone.phases.end(), phase)) << name_of(phase);
  struct Share {
    int ranks;
    std::int64_t zero;
  };
  for (const Share& share : {Share{2, 0}, Share{2, 3}, Share{3, 2}}) {
    if (most_nccl_ranks() < share.ranks) GTEST_SKIP() << kTooFewDevices;
    HybridTrainerConfig config = config_over_devices(5);
    config.distributed.zero = share.zero;
    for (const RankOutcome& one : train_over_devices(config, share.ranks)) {
      expect_same(one, alone, concat(share.ranks, " ranks, zero ", share.zero));
      EXPECT_GT(one.bytes_sent, 0u);
    }
  }
}

TEST(RanksOnDevices, TrainLikeCpuRanks) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  HybridTrainerConfig config = config_over_devices(4);
  config.distributed.zero = 2;
  const RankOutcome wanted = train_ranks(config, 2).front(),
                    found = train_over_devices(config, 2).front();
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  EXPECT_EQ(found.phases, wanted.phases);
  for (std::size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], wanted.losses[i], 10 * loss_tolerance() * wanted.losses[i]) << i;
}

TEST(RanksOnDevices, SimulationShrinksWithZeroStage) {
  HybridTrainerConfig config = config_over_devices(4);
  const auto bytes = [&](std::int64_t zero, MemoryKind kind) {
    config.distributed.zero = zero;
    const MemoryNeed need =
        simulate_ranks(config, {DeviceType::kCuda}, 4, SimulatedPhases::kUpdates);
    return need.phase(Phase::kFull).by_kind[static_cast<std::size_t>(kind)];
  };
  EXPECT_LT(bytes(1, MemoryKind::kOptimizerState), bytes(0, MemoryKind::kOptimizerState) / 2);
  EXPECT_LT(bytes(2, MemoryKind::kGradients), bytes(1, MemoryKind::kGradients));
  EXPECT_LT(bytes(3, MemoryKind::kParameters), bytes(2, MemoryKind::kParameters) / 2);
}

TEST(RanksOnDevices, OverlapDoesNotIncreasePeakMemory) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  HybridTrainerConfig config = config_over_devices(4);
  config.phases.warmup_steps = 2;
  config.training.steps = 5;
  config.distributed.bucket_bytes = 1 << 15;
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    config.distributed.zero = zero;
    SCOPED_TRACE(concat("zero ", zero));
    const PhasePeaks peaks = peaks_beside_as_at_once(config);
    for (const Phase phase : {Phase::kWarmup, Phase::kFull})
      EXPECT_GT(peaks[static_cast<std::size_t>(phase)], 0u);
  }
}

/// If one rank runs out of memory, all repeat the step with smaller micro-batches.
TEST(RanksOnDevices, HalveMicroBatchesAtSameStep) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  HybridTrainerConfig config = config_over_devices(4);
  config.distributed.bucket_bytes = 1 << 15;
  SingleCommunicator one;
  const Device first{DeviceType::kCuda, 0};
  const Trained alone = train_with({.rank = 0, .step = 1, .blocks = 3}, config, one, first);
  EXPECT_EQ(alone.micro_batches, (std::vector<std::int64_t>{4, 8, 8, 8}));
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    config.distributed.zero = zero;
    for (const std::int64_t blocks : {24, 58}) {
      std::vector<Trained> all(2);
      run_nccl_ranks(2, [&](Communicator& rank, Device device) {
        all[static_cast<std::size_t>(rank.rank())] =
            train_with({.rank = 1, .step = 1, .blocks = blocks}, config, rank, device);
      });
      EXPECT_TRUE(all[1].has_failed);
      for (const Trained& each : all) {
        const std::string where = concat("zero ", zero, ", block ", blocks);
        EXPECT_EQ(each.micro_batches, alone.micro_batches) << where;
        expect_same(each.outcome, alone.outcome, where);
      }
    }
  }
}

/// Runs the code of `hybrid train` and expects the checkpoint of a single rank.
TEST(RanksOnDevices, WriteSameCheckpointAsSingleRank) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  HybridTrainerConfig config = tiny_config();
  config.device = "cuda";
  config.mixed_precision = MixedPrecisionConfig::conservative();
  config.data.batch_size = 2;
  config.gradient_accumulation.micro_batches = 4;
  config.training.threads = 1;
  const Interruption interruption;
  const auto train = [&](const std::string& run, Communicator& ranks, int local_rank) {
    std::ostringstream console;
    TrainingRunSettings settings{.config = config,
                                 .data = scratch / "data",
                                 .run = scratch / run,
                                 .init_from = {},
                                 .command = "test"};
    settings.interruption = &interruption;
    settings.ranks = &ranks;
    settings.local_rank = local_rank;
    return run_training(settings, console).summary;
  };
  SingleCommunicator alone;
  train("one", alone, 0);
  config.distributed.zero = 3;
  run_nccl_ranks(2, [&](Communicator& ranks, Device device) {
    const RunSummary summary = train("two", ranks, device.index);
    EXPECT_EQ(summary.distributed->backend, "nccl");
    EXPECT_GT(summary.distributed->bytes_sent, 0u);
  });
  EXPECT_EQ(newest_checkpoint_digest(scratch / "two"), newest_checkpoint_digest(scratch / "one"));
}

}  // namespace
}  // namespace hybrid_trainer
