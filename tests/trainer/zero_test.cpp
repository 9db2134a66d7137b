#include <functional>

#include "hybrid_trainer/core/error.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

/// A model with matrices of more than one chunk, so that shards end within weights.
HybridTrainerConfig cut_config(const std::string& optimizer, std::int64_t micro_batches) {
  HybridTrainerConfig config = rank_config(optimizer, micro_batches);
  config.model.width = 80;
  return config;
}

void expect_bits_of_one(HybridTrainerConfig config, const std::vector<int>& ranks,
                        const std::vector<std::int64_t>& stages, const std::string& what) {
  const RankOutcome alone = train_alone(config);
  for (const int count : ranks) {
    for (const std::int64_t zero : stages) {
      config.distributed.zero = zero;
      for (const RankOutcome& one : train_ranks(config, count)) {
        expect_same(one, alone, concat(what, ", ", count, " ranks, zero ", zero));
        EXPECT_EQ(one.bytes_sent > 0, count > 1);
      }
    }
  }
}

class ZeroWithOptimizer : public ::testing::TestWithParam<const char*> {};

TEST_P(ZeroWithOptimizer, MatchesSingleRank) {
  const std::vector<Phase> phases = train_alone(cut_config(GetParam(), 4)).phases;
  for (const Phase phase : kAllPhases)
    EXPECT_TRUE(std::count(phases.begin(), phases.end(), phase)) << name_of(phase);
  for (const std::int64_t micro_batches : {4, 7})
    expect_bits_of_one(cut_config(GetParam(), micro_batches), {1, 2, 3, 4}, {0, 1, 2, 3},
                       GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, ZeroWithOptimizer, ::testing::Values("adamw", "muon"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Zero, OtherOptimizersMatchSingleRank) {
  for (const char* const optimizer : {"lion", "sgd", "adam_mini", "adafactor"})
    expect_bits_of_one(cut_config(optimizer, 5), {3}, {0, 1, 2, 3}, optimizer);
}

struct Change {
  const char* name;
  std::function<void(HybridTrainerConfig&)> make;
};

/// Other settings of a run can be combined with sharded weights.
TEST(Zero, OtherSettingsMatchSingleRank) {
  const std::vector<Change> changes{
      {"bf16", [](auto& c) { c.mixed_precision.warmup = c.mixed_precision.full = "bf16"; }},
      {"fp16",
       [](auto& c) {
         c.mixed_precision = MixedPrecisionConfig::all("fp16");
         c.mixed_precision.loss_scale = 1 << 24;
         c.mixed_precision.loss_scale_growth_steps = 2;
       }},
      {"fp8", [](auto& c) { c.mixed_precision = MixedPrecisionConfig::all("fp8"); }},
      {"8-bit state", [](auto& c) { c.optimizer.state_bits = 8; }},
      {"16-bit state", [](auto& c) { c.optimizer.state_bits = 16; }},
      {"slow momentum", [](auto& c) { c.optimizer.slow_momentum = 0.5; }},
      {"a mean of the weights", [](auto& c) { c.training.average_weights = 4; }},
      {"state on the host", [](auto& c) { c.memory.optimizer_state = "host"; }},
      {"state in a file", [](auto& c) { c.memory.optimizer_state = "file"; }},
      {"recomputation", [](auto& c) { c.memory.recompute = 1; }},
      {"activations on the host", [](auto& c) { c.memory.activations = "host"; }},
      {"offload to the host",
       [](auto& c) { c.predict_aware_memory.offload_strategy = "pinned_cpu_offload"; }},
      {"state compressed in Predict",
       [](auto& c) { c.predict_aware_memory.offload_strategy = "compress_in_place"; }},
      {"linear", [](auto& c) { c.phases.skip_backward.predictor = "linear"; }},
      {"two_timescale", [](auto& c) { c.phases.skip_backward.predictor = "two_timescale"; }},
      {"merged", [](auto& c) { c.phases.skip_backward.predictor = "merged"; }},
      {"small buckets", [](auto& c) { c.distributed.bucket_bytes = 4096; }},
      {"groups", [](auto& c) { c.optimizer.groups = {{.match = "vector", .name = "sgd"}}; }},
  };
  for (const Change& change : changes) {
    HybridTrainerConfig config = cut_config("adamw", 5);
    change.make(config);
    expect_bits_of_one(config, {3}, {1, 3}, change.name);
  }
}

TEST(Zero, RecurrentLayersMatchSingleRank) {
  HybridTrainerConfig config = cut_config("adamw", 5);
  const std::int64_t vocabulary = config.model.vocabulary;
  config.model = tiny_model("mamba2");
  config.model.vocabulary = vocabulary;
  expect_bits_of_one(config, {3}, {0, 1, 2, 3}, "Mamba-2");
}

/// Different ranks' tokens choose different experts, some of which get no tokens.
TEST(Zero, MixtureOfExpertsMatchesSingleRank) {
  HybridTrainerConfig config = cut_config("adamw", 5);
  config.model.family = "mixtral";
  config.model.experts = {.count = 6, .chosen = 1, .balance_loss = 0.1, .bias_rate = 0.02};
  expect_bits_of_one(config, {2, 3}, {0, 1, 2, 3}, "experts");
}

TEST(Zero, OffloadedMemoryMatchesSingleRank) {
  for (const char* const home : {"host", "file"}) {
    HybridTrainerConfig config = cut_config("adamw", 4);
    config.memory.weights = home;
    expect_bits_of_one(config, {2}, {1, 2}, concat("weights in ", home));
  }
  HybridTrainerConfig config = cut_config("adamw", 4);
  config.optimizer.paged = true;
  config.memory.device_budget.bytes = 64 << 20;
  expect_bits_of_one(config, {2}, {1, 2, 3}, "paged state");
}

/// Cost of each rank after two steps: memory on the device, and traffic of the second step.
struct RankCost {
  MemoryUse memory;
  std::uint64_t bytes_sent = 0, calls = 0;
};

std::vector<RankCost> costs_of(const HybridTrainerConfig& config, int ranks) {
  std::vector<RankCost> costs(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& others) {
    RankLinks links(others, config.distributed);
    Communicator& rank = links.ranks();
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &rank);
    trainer.step(step_batch(config, 0, stream));
    rank.barrier();  // waits for background communication
    const CommunicationUse before = rank.use();
    stream.pool()->reset_peaks();
    trainer.step(step_batch(config, 1, stream));
    rank.barrier();
    costs[static_cast<std::size_t>(rank.rank())] = {stream.pool()->use(),
                                                    rank.use().bytes_sent - before.bytes_sent,
                                                    rank.use().calls - before.calls};
  });
  return costs;
}

std::size_t bytes_of_weights(const HybridTrainerConfig& config) {
  const Stream stream{MemoryPool::create("device")};
  return static_cast<std::size_t>(make_model(config.model, 1, stream)->parameter_count()) *
         sizeof(float);
}

TEST(Zero, EachRankHoldsOnlyItsShare) {
  constexpr int kRanks = 4;
  HybridTrainerConfig config = cut_config("adamw", 4);
  config.model.layers = 8;
  config.mixed_precision.warmup = "fp32";
  config.distributed.bucket_bytes = 1 << 16;
  const double weights = static_cast<double>(bytes_of_weights(config));
  const auto share = [&](std::int64_t zero, MemoryKind kind) {
    config.distributed.zero = zero;
    double most = 0;
    for (const RankCost& cost : costs_of(config, kRanks))
      most = std::max(most, static_cast<double>(cost.memory.peak[static_cast<std::size_t>(kind)]));
    return most / weights;
  };
  EXPECT_NEAR(share(0, MemoryKind::kOptimizerState), 2, 0.05);
  EXPECT_NEAR(share(1, MemoryKind::kOptimizerState), 2.0 / kRanks, 0.05);
  EXPECT_NEAR(share(2, MemoryKind::kOptimizerState), 2.0 / kRanks, 0.05);
  EXPECT_GT(share(1, MemoryKind::kGradients), 1);
  EXPECT_LT(share(2, MemoryKind::kGradients),
            3.0 / kRanks + 0.1);  // two sums, and what was received
  EXPECT_NEAR(share(2, MemoryKind::kParameters), 1, 0.05);
  EXPECT_NEAR(share(3, MemoryKind::kParameters), 1.0 / kRanks, 0.05);
}

/// Bytes that each rank sends in a step of M micro-batches: other ranks' sums, and its own shard.
TEST(Zero, SentBytesMatchStage) {
  constexpr double kRanks = 2, kMicroBatches = 4;
  for (const char* const optimizer : {"adamw", "muon"}) {
    HybridTrainerConfig config = cut_config(optimizer, 4);
    config.model.layers = 4;
    config.distributed.bucket_bytes = 1 << 15;
    const double weights = static_cast<double>(bytes_of_weights(config));
    const double others = weights * (kRanks - 1) / kRanks;
    const std::vector<double> wanted{2 * others, 2 * others,
                                     kMicroBatches / kRanks * others + others};
    for (std::int64_t zero = 0; zero < 3; ++zero) {
      config.distributed.zero = zero;
      double sent = 0;
      for (const RankCost& cost : costs_of(config, 2)) sent += static_cast<double>(cost.bytes_sent);
      EXPECT_NEAR(sent / kRanks / wanted[static_cast<std::size_t>(zero)], 1, 0.02)
          << optimizer << ", zero " << zero;
    }
  }
}

/// Held weights are not sent with messages between steps. Once released, one rank may use them.
TEST(Zero, SendsHeldWeightsOnReleaseOrNextStep) {
  HybridTrainerConfig config = cut_config("adamw", 4);
  config.distributed.zero = 1;
  run_thread_ranks(2, [&](Communicator& others) {
    RankLinks links(others, config.distributed);
    Communicator& ranks = links.ranks();
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    trainer.defer_publishing(true);
    for (int i = 0; i < 2; ++i) {
      trainer.step(step_batch(config, i, stream));
      const std::uint64_t before = ranks.use().bytes_sent;
      EXPECT_EQ(ranks.host_gather("x").size(), 2u);
      EXPECT_EQ(ranks.use().bytes_sent, before + 1);
    }
    const std::uint64_t before = ranks.use().bytes_sent;
    trainer.defer_publishing(false);
    if (ranks.rank() == 0) {  // only on rank 0
      model->visit_parameters(
          [&](Parameter& weight) { const Weight master = weight.acquire_master(stream); });
    }
    ranks.barrier();
    EXPECT_GT(ranks.use().bytes_sent, before + bytes_of_weights(config) / 3);
  });
}

TEST(Zero, BucketSizeFollowsConfig) {
  HybridTrainerConfig config = cut_config("adamw", 2);
  config.distributed.zero = 2;
  config.distributed.bucket_bytes = 1 << 22;
  const RankCost large = costs_of(config, 2).front();
  config.distributed.bucket_bytes = 4096;
  const RankCost small = costs_of(config, 2).front();
  EXPECT_GT(small.calls, large.calls);
  EXPECT_LT(small.memory.peak[static_cast<std::size_t>(MemoryKind::kGradients)],
            large.memory.peak[static_cast<std::size_t>(MemoryKind::kGradients)]);
}

TEST(Zero, OverlapAndSlowLinkDoNotChangeResults) {
  HybridTrainerConfig config = cut_config("adamw", 5);
  config.distributed.bucket_bytes = 1 << 14;
  config.distributed.overlap = false;
  expect_bits_of_one(config, {3}, {0, 1, 2, 3}, "no overlap");
  config.distributed.overlap = true;
  config.distributed.simulated_link.bytes = 1'000'000'000;
  config.distributed.simulated_latency_microseconds = 20;
  expect_bits_of_one(config, {2}, {0, 1, 2, 3}, "a slow link");
}

TEST(Zero, RejectsIncompatibleSettings) {
  const auto expect_refused = [](std::int64_t zero, const char* key, const auto& change) {
    HybridTrainerConfig config = rank_config("adamw", 2);
    config.distributed.zero = zero;
    change(config);
    try {
      train_ranks(config, 2);
      ADD_FAILURE() << key << " was not refused";
    } catch (const ConfigError& error) {
      ASSERT_EQ(error.problems().size(), 1u);
      EXPECT_TRUE(error.problems()[0].starts_with(key)) << error.problems()[0];
      EXPECT_NE(error.problems()[0].find("distributed.zero"), std::string::npos) << error.what();
    }
  };
  expect_refused(1, "phases.skip_backward.predictor: got random",
                 [](auto& c) { c.phases.skip_backward.predictor = "random"; });
  expect_refused(3, "memory.weights", [](auto& c) { c.memory.weights = "host"; });
  expect_refused(3, "distributed.check_weights_every",
                 [](auto& c) { c.distributed.check_weights_every = 1; });
  expect_refused(3, "memory.device_map", [](auto& c) { c.memory.device_map = "h.*=host"; });
}

}  // namespace
}  // namespace hybrid_trainer
