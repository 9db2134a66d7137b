#include <algorithm>

#include "hybrid_trainer/core/error.h"
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

/// Faults at every `stride`th block of a step, on one rank after the other. Where all halve, they come
/// to what one rank comes to that does. Returns how often.
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
      continue;  // smaller ones would have been no way out
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

/// Wherever in forward and backward a rank has too little memory; in sums over ranks and in the
/// update smaller micro-batches are no way out.
TEST_P(RankShortage, LetsAllRanksHalveAtTheSameStep) {
  for (const std::int64_t step : {0, 1}) {
    EXPECT_GE(halve_at_blocks(short_config("adamw", GetParam()), 2, step, 13), 5);
  }
}

TEST_P(RankShortage, LetsRanksHalveThatHaveNoMicroBatchesOfTheSameNumber) {
  HybridTrainerConfig config = short_config("muon", GetParam());
  config.gradient_accumulation.micro_batches = 5;
  config.memory.recompute = 1;
  config.mixed_precision.warmup = config.mixed_precision.full = "bf16";
  EXPECT_GE(halve_at_blocks(config, 3, 1, 31), 5);
}

/// Where losses alone are computed.
TEST_P(RankShortage, LetsAllRanksHalveInPredict) {
  const HybridTrainerConfig config = short_config("adamw", GetParam());
  const std::vector<Phase> phases = train_alone(config).phases;
  const auto predict = std::find(phases.begin(), phases.end(), Phase::kPredict) - phases.begin();
  EXPECT_GE(halve_at_blocks(config, 2, predict + 1, 17), 5);
}

INSTANTIATE_TEST_SUITE_P(Zero, RankShortage, ::testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace hybrid_trainer
