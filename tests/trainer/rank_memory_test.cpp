#include <algorithm>
#include <array>

#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

using PhasePeaks = std::array<std::size_t, kPhases>;

/// By phase, of whichever rank takes the most; without the loader's batches but one.
PhasePeaks peaks_over_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<PhasePeaks> by_rank(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& rank) {
    const Stream stream{MemoryPool::create("device")};
    const Batch batch = step_batch(config, 0, stream), prefetched = step_batch(config, 1, stream);
    const Batch windows = batch.examples(0, config.data.batch_size);
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &rank);
    RunSummary summary;
    for (std::int64_t i = 0; i < config.training.steps; ++i) summary.add(trainer.step(batch));
    for (const Phase phase : kAllPhases) {
      by_rank[static_cast<std::size_t>(rank.rank())][static_cast<std::size_t>(phase)] =
          summary.phase(phase).peak_bytes;
    }
  });
  PhasePeaks most{};
  for (const PhasePeaks& peaks : by_rank) {
    for (std::size_t i = 0; i < kPhases; ++i) most[i] = std::max(most[i], peaks[i]);
  }
  return most;
}

/// With what a rank has a part of, and sums of micro-batches that others send.
TEST(RankMemory, IsSimulatedAsItIsMeasured) {
  for (const char* const optimizer : {"adamw", "muon"}) {
    HybridTrainerConfig config = rank_config(optimizer, 6);
    config.model.width = 80;
    config.model.layers = 3;
    config.data.prefetch_depth = 1;
    config.distributed.bucket_bytes = 1 << 15;
    for (const int ranks : {2, 3}) {
      for (const std::int64_t zero : {0, 1, 2, 3}) {
        config.distributed.zero = zero;
        const MemoryNeed need = simulate_ranks(config, {}, ranks);
        const PhasePeaks measured = peaks_over_ranks(config, ranks);
        for (const Phase phase : {Phase::kWarmup, Phase::kFull}) {
          const auto taken = static_cast<double>(measured[static_cast<std::size_t>(phase)]);
          EXPECT_NEAR(static_cast<double>(need.phase(phase).peak_bytes) / taken, 1, 0.05)
              << optimizer << ", " << ranks << " ranks, zero " << zero << ", " << name_of(phase);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer
