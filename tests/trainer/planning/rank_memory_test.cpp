#include <algorithm>

#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/trainer/planning/rank_peaks.h"

namespace hybrid_trainer {
namespace {

PhasePeaks peaks_over_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<PhasePeaks> by_rank(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& others) {
    RankLinks links(others, config.distributed);
    by_rank[static_cast<std::size_t>(others.rank())] = rank_peaks(config, links.ranks());
  });
  return most_of(by_rank);
}

/// Includes the rank's shards, and sums of micro-batches received from other ranks.
TEST(RankMemory, SimulationMatchesMeasuredPeaks) {
  for (const char* const optimizer : {"adamw", "muon"}) {
    HybridTrainerConfig config = rank_config(optimizer, 6);
    config.model.width = 80;
    config.model.layers = 3;
    config.data.prefetch_depth = 1;
    config.distributed.bucket_bytes = 1 << 15;
    for (const int ranks : {2, 3}) {
      for (const std::int64_t zero : {0, 1, 2, 3}) {
        config.distributed.zero = zero;
        config.gradient_accumulation.micro_batches = ranks == 2 ? 2 : 6;  // one or two per rank
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

/// Includes pending exchanges of Predict and the predicted weights.
TEST(RankMemory, SimulationMatchesLateGradientPeaks) {
  HybridTrainerConfig config = rank_config("adamw", 3);
  config.model.width = 80;
  config.model.layers = 3;
  config.data.prefetch_depth = 1;
  config.distributed.bucket_bytes = 1 << 15;
  struct Case {
    std::int64_t lag = 1, local_steps = 0, zero = 0, fragments = 1, bits = 32;
  };
  for (const auto& [lag, local_steps, zero, fragments, bits] :
       {Case{.lag = 1}, Case{.lag = 3}, Case{.lag = 1, .local_steps = 3}, Case{.lag = 1, .zero = 1},
        Case{.lag = 3, .zero = 1}, Case{.lag = 1, .local_steps = 3, .fragments = 3},
        Case{.lag = 3, .local_steps = 4, .fragments = 4},
        Case{.lag = 1, .local_steps = 5, .fragments = 2},
        Case{.lag = 1, .local_steps = 3, .bits = 8},
        Case{.lag = 2, .local_steps = 4, .fragments = 2, .bits = 4}}) {
    config.phases.method = local_steps > 0 ? "local_sgd" : "asynchronous_gradients";
    config.phases.asynchronous_gradients.delay = lag;
    config.phases.local_sgd = {
        .steps = local_steps, .delay = lag, .fragments = fragments, .exchange_bits = bits};
    config.distributed.zero = zero;
    const MemoryNeed need = simulate_ranks(config, {}, 3);
    const PhasePeaks measured = peaks_over_ranks(config, 3);
    for (const Phase phase : kAllPhases) {
      const auto taken = static_cast<double>(measured[static_cast<std::size_t>(phase)]);
      EXPECT_NEAR(static_cast<double>(need.phase(phase).peak_bytes) / taken, 1, 0.05)
          << "lag " << lag << ", local steps " << local_steps << ", zero " << zero << ", fragments "
          << fragments << ", bits " << bits << ", " << name_of(phase);
    }
  }
}

std::vector<std::uint64_t> bytes_sent_in_full(const HybridTrainerConfig& config, int ranks) {
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& rank) {
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &rank);
    for (;;) {
      const std::uint64_t before = rank.use().bytes_sent;
      const Phase phase = trainer.step(step_batch(config, 0, stream)).phase;
      sent[static_cast<std::size_t>(rank.rank())] = rank.use().bytes_sent - before;
      if (phase == Phase::kFull) return;
    }
  });
  return sent;
}

/// Scalars are excluded.
TEST(RankMemory, SimulationMatchesSentBytes) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    HybridTrainerConfig config = rank_config("adamw", 5);
    config.model.width = 80;
    config.distributed.zero = zero;
    const auto sent = bytes_sent_in_full(config, 3);
    const auto most = static_cast<double>(*std::max_element(sent.begin(), sent.end()));
    const StepTransfer planned = simulate_ranks(config, {}, 3).transfer;
    EXPECT_NEAR(static_cast<double>(planned.bytes_sent) / most, 1, 0.02) << "zero " << zero;
    EXPECT_GE(planned.link_bytes, planned.bytes_sent) << "zero " << zero;
  }
}

}  // namespace
}  // namespace hybrid_trainer
