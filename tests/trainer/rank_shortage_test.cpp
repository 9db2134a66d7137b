#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

/// Gives out every block by itself, but for one that it has not when it is asked.
class FailingMemory final : public MemorySource {
 public:
  void* take(std::size_t bytes) noexcept override {
    const bool fails = left_ == 0 || left_ == -1;  // a pool asks twice
    if (left_ >= -1) --left_;
    return fails ? nullptr : memory_->take(bytes);
  }
  void give(void* data, std::size_t bytes) noexcept override { memory_->give(data, bytes); }
  Device device() const override { return memory_->device(); }
  bool keeps_blocks_apart() const override { return true; }

  /// After so many more.
  void fail_after(std::int64_t blocks) { left_ = blocks; }
  bool has_failed() const { return left_ < -1; }

 private:
  std::unique_ptr<MemorySource> memory_ = system_memory();
  std::int64_t left_ = -2;
};

/// Where a rank has no memory for one block.
struct Fault {
  int rank = 0;
  std::int64_t step = 0, blocks = 0;               // before it in that step
  std::int64_t steps() const { return step + 3; }  // that are trained
};

struct Trained {
  RankOutcome outcome;
  std::vector<std::int64_t> micro_batches;  // of each step
  bool has_failed = false;
};

Trained train_with(const Fault& fault, const HybridTrainerConfig& config, Communicator& others) {
  RankLinks links(others, config.distributed);
  auto owned = std::make_unique<FailingMemory>();
  FailingMemory& memory = *owned;
  const Stream stream{MemoryPool::create("device", {}, std::move(owned))};
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &links.ranks());
  Trained trained;
  for (std::int64_t step = 0; step < fault.steps(); ++step) {
    const Batch batch = step_batch(config, step, stream);
    const bool fails = step == fault.step && others.rank() == fault.rank;
    if (fails) memory.fail_after(fault.blocks);
    const StepRecord record = trainer.step(batch);
    if (fails) {
      trained.has_failed = memory.has_failed();
      memory.fail_after(-2);
    }
    trained.micro_batches.push_back(record.micro_batches);
    trained.outcome.losses.push_back(record.loss);
    trained.outcome.phases.push_back(record.phase);
  }
  model->visit_parameters([&](Parameter& parameter) {
    const Weight master = parameter.acquire_master(stream);
    const Tensor here = wait_for_host(master.tensor(), stream);
    trained.outcome.weights.insert(trained.outcome.weights.end(), here.data<float>(),
                                   here.data<float>() + parameter.elements());
  });
  return trained;
}

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
