#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/core/machine.h"
#include "src/run/run_files.h"
#include "tests/run/run_over_ranks.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// Holds for any number of micro-batches.
TEST_F(RunOverRanks, DoesNotPredictIfBudgetFitsOnlyUpdates) {
  HybridTrainerConfig tight = config();
  tight.phases.skip_backward.predictor = "linear";  // keeps earlier weights
  const auto bytes = [&](SimulatedPhases phases) {
    HybridTrainerConfig known = tight;
    known.model.vocabulary = read_data_info(data_)->vocabulary_size;
    known.predict_aware_memory.async_restore = false;  // its staging buffer is optional
    return simulate_ranks(known, {}, 2, phases).device_bytes;
  };
  std::size_t updates = 0, all = 0;
  std::thread([&] {
    set_threads(1);  // affects the workspace of products
    updates = bytes(SimulatedPhases::kUpdates);
    all = bytes(SimulatedPhases::kAll);
  }).join();
  ASSERT_LT(updates, all);
  tight.memory.device_budget.bytes = (updates + all) / 2;
  std::vector<RunSummary> summaries(2);
  run_thread_ranks(2, [&](Communicator& rank) {
    summaries[static_cast<std::size_t>(rank.rank())] =
        train_rank(tight, scratch_ / "run", false, rank).summary;
  });
  for (const RunSummary& summary : summaries) {
    EXPECT_EQ(summary.end, "finished");
    EXPECT_EQ(summary.phase(Phase::kPredict).steps, 0);
  }
}

/// The budget applies to a rank with its shard.
TEST_F(RunOverRanks, ChecksBudgetBeforeCreatingFolder) {
  HybridTrainerConfig own = config();
  own.optimizer.name = "adamw";
  own.distributed.zero = 3;
  own.phases.max_predict_steps = 0;
  train(own, scratch_ / "one", 1);
  own.model = config_of_run({(scratch_ / "one").string()}).model;
  const std::size_t part = simulate_ranks(own, {}, 3, SimulatedPhases::kUpdates).device_bytes;
  ASSERT_LT(part, simulate_memory(own, {}, SimulatedPhases::kUpdates).device_bytes);
  own.memory.device_budget.bytes = static_cast<std::int64_t>(part) + 4096;
  train(own, scratch_ / "fits", 3);
  own.data.batch_size = 15;  // cannot be halved
  own.gradient_accumulation.micro_batches = 3;
  EXPECT_THROW(train(own, scratch_ / "does not", 3), OutOfMemory);
  EXPECT_FALSE(fs::exists(scratch_ / "does not"));
}

/// Gives the bits of a run that starts with as many. With more memory, uses the configured number.
TEST_F(RunOverRanks, AllRanksHalveMicroBatchesInSmallBudget) {
  HybridTrainerConfig given = config();
  given.data.batch_size = 16;
  given.gradient_accumulation.micro_batches = 3;
  given.phases.max_predict_steps = 0;
  HybridTrainerConfig halves = given;
  halves.data.batch_size = 8;
  halves.gradient_accumulation.micro_batches = 6;
  train(halves, scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  const auto need = [&](HybridTrainerConfig of) {
    of.model = config_of_run({(scratch_ / "one").string()}).model;
    std::size_t bytes = 0;
    std::thread([&] {
      set_threads(1);  // affects the workspace of products
      bytes = simulate_ranks(of, {}, 3, SimulatedPhases::kUpdates).device_bytes;
    }).join();
    return bytes;
  };
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    given.distributed.zero = halves.distributed.zero = zero;
    HybridTrainerConfig tight = given;
    tight.memory.device_budget.bytes = static_cast<std::int64_t>((need(given) + need(halves)) / 2);
    const fs::path run = scratch_ / concat("zero", zero);
    train(tight, run, 3);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "zero " << zero;
    for (const fs::path& of : {run, run / "ranks/1", run / "ranks/2"}) {
      for (const StepRecord& record : records_of(of))
        EXPECT_EQ(record.micro_batches, 6) << of << ", step " << record.step;
    }
    ASSERT_GT(fs::remove_all(run / "checkpoints/step-0000000040"), 0u);
    train(tight, run, 3, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "zero " << zero << ", resumed";
    ASSERT_GT(fs::remove_all(run / "checkpoints/step-0000000040"), 0u);
    tight.memory.device_budget.bytes *= 2;
    train(tight, run, 2, true);
    EXPECT_EQ(records_of(run).back().micro_batches, 3) << "the budget has grown";
  }
}

}  // namespace
}  // namespace hybrid_trainer
