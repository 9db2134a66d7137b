#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

TEST(Ranks, SingleRankMatchesPlainTraining) {
  for (const std::int64_t micro_batches : {1, 3, 4}) {
    const HybridTrainerConfig config = rank_config("adamw", micro_batches);
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer plain(*model, config, stream, MemoryPool::create("host"));
    std::vector<double> losses;
    while (plain.steps_done() < kSteps)
      losses.push_back(plain.step(step_batch(config, plain.steps_done(), stream)).loss);
    EXPECT_EQ(train_alone(config).losses, losses) << micro_batches << " micro-batches";
  }
}

TEST(Ranks, EachRankComputesOwnMicroBatches) {
  const HybridTrainerConfig config = rank_config("adamw", 4);
  const auto tokens_matter_on = [&](int rank, std::int64_t example) {
    std::vector<double> losses;
    for (const bool changed : {false, true}) {
      run_thread_ranks(2, [&](Communicator& ranks) {
        const Stream stream{MemoryPool::create("device")};
        const auto model = make_model(config.model, 1, stream);
        HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
        const Batch batch = step_batch(config, 0, stream);
        if (changed && ranks.rank() == rank)
          batch.at("tokens").data<std::int32_t>()[example * config.data.sequence_length] = 18;
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

TEST(Ranks, RejectsMoreRanksThanMicroBatches) {
  HybridTrainerConfig config = rank_config("adamw", 2);
  config.data.batch_size = 3;
  const auto problems = problems_of(config, 3);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("got 2 for 3 ranks"), std::string::npos) << problems[0];
  EXPECT_NE(problems[0].find("data.batch_size=2 and gradient_accumulation.micro_batches=3"),
            std::string::npos)
      << problems[0];
}

TEST(Ranks, RejectsBackendOfOtherDevice) {
  HybridTrainerConfig config = rank_config("adamw", 2);
  config.device = "cpu";
  config.distributed.backend = "mpi";
  EXPECT_EQ(problems_of(config, 2), std::vector<std::string>{});
  config.distributed.backend = "nccl";
  EXPECT_EQ(problems_of(config, 2),
            std::vector<std::string>{"distributed.backend: got nccl, but ranks on cpu use mpi or "
                                     "sockets; want auto, or device cuda"});
}

TEST(Ranks, RejectsUnsupportedSettingsByName) {
  const auto expect_refused = [](const char* key, const auto& change) {
    HybridTrainerConfig config = rank_config("adamw", 2);
    change(config);
    const auto problems = problems_of(config, 2);
    ASSERT_EQ(problems.size(), 1u) << key;
    EXPECT_TRUE(problems[0].starts_with(concat(key, ": got "))) << problems[0];
  };
  expect_refused("memory.gradients", [](auto& config) { config.memory.gradients = "consume"; });
  expect_refused("training.cuda_graphs", [](auto& config) { config.training.cuda_graphs = true; });
  expect_refused("phases.method",
                 [](auto& config) { config.phases.method = "asynchronous_optimizer"; });
  expect_refused("stages",
                 [](auto& config) { config.stages = {{.until = 0.5, .sequence_length = 8}}; });
}

}  // namespace
}  // namespace hybrid_trainer
