#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/single_communicator.h"
#include "hybrid_trainer/distributed/thread_communicator.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "tests/trainer/tiny_run.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kSteps = 30;

/// What a rank has at the end.
struct RankOutcome {
  std::vector<float> weights;
  std::vector<double> losses;
  std::vector<Phase> phases;
  std::uint64_t bytes_sent = 0;
  bool operator==(const RankOutcome&) const = default;
};

HybridTrainerConfig rank_config(const std::string& optimizer, std::int64_t micro_batches) {
  HybridTrainerConfig config = tiny_config();
  config.model.vocabulary = 19;  // odd
  config.model.dropout = 0.1;
  config.data.batch_size = 2;
  config.gradient_accumulation.micro_batches = micro_batches;
  config.training.steps = kSteps;
  config.optimizer.name = optimizer;
  config.optimizer.clip_norm = 0.5;
  return config;
}

/// Tokens of a step, the same for each rank.
Batch step_batch(const HybridTrainerConfig& config, std::int64_t step, const Stream& stream) {
  const Shape shape{config.data.batch_size * config.gradient_accumulation.micro_batches,
                    config.data.sequence_length};
  Batch batch{Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream),
              Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)};
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t token = (i * i + 3 * step + i / 7) % 17;
    batch.inputs.data<std::int32_t>()[i] = static_cast<std::int32_t>(token);
    batch.targets.data<std::int32_t>()[i] = static_cast<std::int32_t>((token * 5 + 1) % 19);
  }
  return batch;
}

RankOutcome train_rank(const HybridTrainerConfig& config, Communicator& ranks) {
  const Stream stream{MemoryPool::create("device")};
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"));
  trainer.join(ranks);
  RankOutcome outcome;
  while (trainer.steps_done() < kSteps) {
    const StepRecord record = trainer.step(step_batch(config, trainer.steps_done(), stream));
    outcome.losses.push_back(record.loss);
    outcome.phases.push_back(record.phase);
  }
  model->visit_parameters([&](Parameter& parameter) {
    const Tensor master = parameter.home_master();
    outcome.weights.insert(outcome.weights.end(), master.data<float>(),
                           master.data<float>() + master.elements());
  });
  outcome.bytes_sent = ranks.use().bytes_sent;
  return outcome;
}

RankOutcome train_alone(const HybridTrainerConfig& config) {
  SingleCommunicator alone;
  return train_rank(config, alone);
}

std::vector<RankOutcome> train_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& rank) {
    outcomes[static_cast<std::size_t>(rank.rank())] = train_rank(config, rank);
  });
  return outcomes;
}

class RanksWithOptimizer : public ::testing::TestWithParam<const char*> {};

TEST_P(RanksWithOptimizer, HaveTheBitsOfOne) {
  for (const std::int64_t micro_batches : {4, 7}) {
    const HybridTrainerConfig config = rank_config(GetParam(), micro_batches);
    const RankOutcome alone = train_alone(config);
    for (const Phase phase : kAllPhases)
      EXPECT_TRUE(std::count(alone.phases.begin(), alone.phases.end(), phase)) << name_of(phase);
    for (const int ranks : {1, 2, 3, 4}) {
      for (const RankOutcome& one : train_ranks(config, ranks)) {
        EXPECT_EQ(one.weights, alone.weights) << ranks << " ranks";
        EXPECT_EQ(one.losses, alone.losses) << ranks << " ranks";
        EXPECT_EQ(one.phases, alone.phases) << ranks << " ranks";
        EXPECT_EQ(one.bytes_sent > 0, ranks > 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksWithOptimizer, ::testing::Values("adamw", "muon"),
                         [](const auto& info) { return std::string(info.param); });

/// One micro-batch has nothing to be summed.
TEST(Ranks, OneWithOneMicroBatchHasTheBitsOfPlainTraining) {
  const HybridTrainerConfig config = rank_config("adamw", 1);
  const Stream stream{MemoryPool::create("device")};
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer plain(*model, config, stream, MemoryPool::create("host"));
  std::vector<double> losses;
  while (plain.steps_done() < kSteps)
    losses.push_back(plain.step(step_batch(config, plain.steps_done(), stream)).loss);
  EXPECT_EQ(train_alone(config).losses, losses);
}

TEST(Ranks, EachComputesItsOwnMicroBatches) {
  const HybridTrainerConfig config = rank_config("adamw", 4);
  const auto tokens_matter_on = [&](int rank, std::int64_t example) {
    std::vector<double> losses;
    for (const bool changed : {false, true}) {
      run_thread_ranks(2, [&](Communicator& ranks) {
        const Stream stream{MemoryPool::create("device")};
        const auto model = make_model(config.model, 1, stream);
        HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"));
        trainer.join(ranks);
        const Batch batch = step_batch(config, 0, stream);
        if (changed && ranks.rank() == rank)
          batch.inputs.data<std::int32_t>()[example * config.data.sequence_length] = 18;
        const double loss = trainer.step(batch).loss;
        if (ranks.rank() == 0) losses.push_back(loss);
      });
    }
    return losses[0] != losses[1];
  };
  EXPECT_TRUE(tokens_matter_on(0, 0));
  EXPECT_FALSE(tokens_matter_on(1, 0));
  EXPECT_FALSE(tokens_matter_on(0, 7));
  EXPECT_TRUE(tokens_matter_on(1, 7));
}

std::vector<std::string> problems_of(const HybridTrainerConfig& config, int count) {
  std::vector<std::string> problems;
  try {
    run_thread_ranks(count, [&](Communicator& ranks) { train_rank(config, ranks); });
  } catch (const ConfigError& error) {
    problems = error.problems();
  }
  return problems;
}

TEST(Ranks, MoreThanMicroBatchesAreRefusedWithSettingsThatFit) {
  HybridTrainerConfig config = rank_config("adamw", 2);
  config.data.batch_size = 3;
  const auto problems = problems_of(config, 3);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("got 2 for 3 ranks"), std::string::npos) << problems[0];
  EXPECT_NE(problems[0].find("data.batch_size=2 and gradient_accumulation.micro_batches=3"),
            std::string::npos)
      << problems[0];
}

TEST(Ranks, WhatTheyCannotDoIsRefusedByName) {
  const auto expect_refused = [](const char* key, const auto& change) {
    HybridTrainerConfig config = rank_config("adamw", 2);
    change(config);
    const auto problems = problems_of(config, 2);
    ASSERT_EQ(problems.size(), 1u) << key;
    EXPECT_TRUE(problems[0].starts_with(concat(key, ": does not go with ranks"))) << problems[0];
  };
  expect_refused("memory.gradients", [](auto& config) { config.memory.gradients = "consume"; });
  expect_refused("training.cuda_graphs", [](auto& config) { config.training.cuda_graphs = true; });
  expect_refused("phases.ingredient",
                 [](auto& config) { config.phases.ingredient = "optimizer_state"; });
  expect_refused("stretches",
                 [](auto& config) { config.stretches = {{.until = 0.5, .sequence_length = 8}}; });
}

}  // namespace
}  // namespace hybrid_trainer
