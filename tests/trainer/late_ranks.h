#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/test_files.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {

/// A config with Predict in steps 9 to 20 and so on. With ZeRO, the shards are in several groups.
inline HybridTrainerConfig late_config(const std::string& optimizer = "adamw",
                                       std::int64_t zero = 0) {
  HybridTrainerConfig config = rank_config(optimizer, 4);
  config.distributed.zero = zero;
  if (zero > 0) config.distributed.bucket_bytes = 4096;
  config.phases.method = "asynchronous_gradients";
  config.phases.warmup_steps = 4;
  config.phases.full_steps = 4;
  config.phases.max_predict_steps = 12;
  config.phases.correct_steps = 2;
  config.phases.asynchronous_gradients.prediction_error_limit = 0;
  return config;
}

/// Sets the method: local SGD with `steps`, or asynchronous gradients if `steps` is 0.
inline void set_local_steps(PhaseConfig& phases, std::int64_t steps) {
  phases.method = steps > 0 ? "local_sgd" : "asynchronous_gradients";
  phases.local_sgd.steps = steps;
}

/// The outcome of all ranks, with equal weights and phases; losses may differ until an exchange.
inline RankOutcome common_outcome(const HybridTrainerConfig& config, int ranks) {
  const std::vector<RankOutcome> all = train_ranks(config, ranks);
  for (const RankOutcome& one : all) {
    EXPECT_TRUE(one.weights == all[0].weights);
    EXPECT_EQ(one.phases, all[0].phases);
  }
  EXPECT_TRUE(std::count(all[0].phases.begin(), all[0].phases.end(), Phase::kPredict) > 0);
  EXPECT_EQ(all[0].phases.back(), Phase::kCorrect);
  return all[0];
}

/// Trains `steps` steps and calls `see` after each step of each rank.
template <class See>
void see_steps(const HybridTrainerConfig& config, int ranks, std::int64_t steps, const See& see) {
  run_thread_ranks(ranks, [&](Communicator& others) {
    RankLinks links(others, config.distributed);
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &links.ranks());
    while (trainer.steps_done() < steps) {
      const StepRecord record = trainer.step(step_batch(config, trainer.steps_done(), stream));
      see(others.rank(), record, trainer, *model, stream);
    }
  });
}

/// Returns one rank's final weights. Saves or resumes from a checkpoint after `saves_after` steps.
inline std::vector<float> train_through(const HybridTrainerConfig& config, bool resumes,
                                        std::int64_t saves_after, const TemporaryFolder& folder,
                                        Communicator& others, Device device = {}) {
  RankLinks links(others, config.distributed, device);
  const Stream stream{make_device_pool(device)};
  const auto model = make_model(config.model, resumes ? 2 : 1, stream);
  HybridTrainer trainer(*model, config, stream, make_host_pool(device), &links.ranks());
  if (resumes) {
    EXPECT_TRUE(trainer.resume((folder / "checkpoints").string()));
  }
  while (trainer.steps_done() < kSteps) {
    trainer.step(step_batch(config, trainer.steps_done(), stream));
    if (!resumes && trainer.steps_done() == saves_after)
      trainer.save((folder / "checkpoints").string());
  }
  return master_values(*model, stream);
}

/// Final weights of two ranks on a CPU.
inline std::vector<std::vector<float>> train_through(const HybridTrainerConfig& config,
                                                     bool resumes, std::int64_t saves_after,
                                                     const TemporaryFolder& folder) {
  std::vector<std::vector<float>> weights(2);
  run_thread_ranks(2, [&](Communicator& others) {
    weights[static_cast<std::size_t>(others.rank())] =
        train_through(config, resumes, saves_after, folder, others);
  });
  return weights;
}

}  // namespace hybrid_trainer
