// Training of a network with different parts: phases, ranks, and the placement of its weights.
#include "hybrid_trainer/nn/module_graph.h"
#include "tests/nn/graph/mixed_network.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kExamples = 2;  // of a micro-batch

HybridTrainerConfig network_config(std::int64_t micro_batches) {
  HybridTrainerConfig config = rank_config("adamw", micro_batches);
  config.model = {};
  config.data.batch_size = kExamples;
  config.data.sequence_length = graph::kWords;
  config.mixed_precision = MixedPrecisionConfig::conservative();
  return config;
}

RankOutcome train_network(const HybridTrainerConfig& config, Communicator& others,
                          const std::vector<PartSettings>& settings = {}) {
  RankLinks links(others, config.distributed, {});
  const Stream stream{make_device_pool()};
  ModuleGraph network(graph::mixed_nodes(0.1f), 1, stream);
  network.set_parts(settings);
  HybridTrainer trainer(network, config, stream, make_host_pool(), &links.ranks());
  RankOutcome outcome;
  while (trainer.steps_done() < kSteps) {
    const auto step = static_cast<std::uint64_t>(trainer.steps_done());
    const StepRecord record = trainer.step(graph::mixed_batch(
        kExamples * config.gradient_accumulation.micro_batches, stream, 100 * step));
    outcome.losses.push_back(record.loss);
    outcome.phases.push_back(record.phase);
  }
  outcome.weights = master_values(network, stream);
  return outcome;
}

RankOutcome train_network_alone(const HybridTrainerConfig& config,
                                const std::vector<PartSettings>& settings = {}) {
  SingleCommunicator alone;
  return train_network(config, alone, settings);
}

TEST(NetworkTraining, RunsAllPhasesAndLearns) {
  const RankOutcome run = train_network_alone(network_config(1));
  for (const Phase phase : kAllPhases)
    EXPECT_GT(std::ranges::count(run.phases, phase), 0) << name_of(phase);
  EXPECT_LT(run.losses.back(), run.losses.front());
}

TEST(NetworkTraining, RanksMatchSingleRank) {
  HybridTrainerConfig config = network_config(4);
  const RankOutcome one = train_network_alone(config);
  for (const int zero : {0, 2, 3}) {
    config.distributed.zero = zero;
    std::vector<RankOutcome> outcomes(2);
    run_thread_ranks(2, [&](Communicator& rank) {
      outcomes[static_cast<std::size_t>(rank.rank())] = train_network(config, rank);
    });
    expect_same(outcomes[0], one, concat("zero ", zero));
    expect_same(outcomes[1], one, concat("zero ", zero));
  }
}

TEST(NetworkTraining, OffloadAndRecomputeDoNotChangeResults) {
  HybridTrainerConfig config = network_config(2);
  const RankOutcome plain = train_network_alone(config);
  HybridTrainerConfig away = config;
  away.memory.device_map = "video.*=host,text.blocks.h.1.*=host,*=device";
  expect_same(train_network_alone(away), plain, "parts on the host");
  HybridTrainerConfig recomputing = config;
  recomputing.memory.recompute = 0.5;
  expect_same(train_network_alone(recomputing), plain, "half computed again");
  expect_same(train_network_alone(config, {{.pattern = "video.*", .recompute = 1},
                                           {.pattern = "text.*", .recompute = 0.5}}),
              plain, "parts computed again");
  HybridTrainerConfig kept_away = config;
  kept_away.memory.activations = "host";
  kept_away.memory.recompute = 0.7;
  expect_same(train_network_alone(kept_away), plain, "activations on the host");
}

TEST(NetworkTraining, MixesPrecisionsByPart) {
  HybridTrainerConfig config = network_config(2);
  const RankOutcome exact = train_network_alone(config);
  const RankOutcome mixed =
      train_network_alone(config, {{.pattern = "series.*", .dtype = DType::kBF16}});
  EXPECT_NE(mixed.losses, exact.losses);
  EXPECT_NEAR(mixed.losses.front(), exact.losses.front(), 0.02);
  config.mixed_precision = MixedPrecisionConfig::all("bf16");
  expect_same(train_network_alone(config, {{.pattern = "*", .dtype = DType::kF32}}), exact,
              "all parts in f32");
}

}  // namespace
}  // namespace hybrid_trainer
