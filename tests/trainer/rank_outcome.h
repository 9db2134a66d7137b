#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "src/distributed/host_ranks.h"
#include "src/distributed/single_communicator.h"
#include "src/trainer/sharding/rank_links.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {

inline constexpr std::int64_t kSteps = 30;

/// Final results of a rank.
struct RankOutcome {
  std::vector<float> weights;
  std::vector<double> losses;
  std::vector<Phase> phases;
  std::uint64_t bytes_sent = 0;
  bool operator==(const RankOutcome&) const = default;
};

inline HybridTrainerConfig rank_config(const std::string& optimizer, std::int64_t micro_batches) {
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

/// Tokens of a step, identical on each rank.
inline Batch step_batch(const HybridTrainerConfig& config, std::int64_t step,
                        const Stream& stream) {
  if (stream.device().type != DeviceType::kCpu) {
    const Batch here = step_batch(config, step, Stream(MemoryPool::create("batch")));
    return here.with([&](const Tensor& part) { return wait_for_device(part, stream); });
  }
  const Shape shape{config.data.batch_size * config.gradient_accumulation.micro_batches,
                    config.data.sequence_length};
  Batch batch = token_batch(Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream),
                            Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream));
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t token = (i * i + 3 * step + i / 7) % 17;
    batch.at("tokens").data<std::int32_t>()[i] = static_cast<std::int32_t>(token);
    batch.at("targets").data<std::int32_t>()[i] = static_cast<std::int32_t>((token * 5 + 1) % 19);
  }
  return batch;
}

inline std::vector<float> master_values(LossModel& model, const Stream& stream) {
  std::vector<float> weights;
  model.visit_parameters([&](Parameter& parameter) {
    const Weight master = parameter.acquire_master(stream);
    const Tensor here = wait_for_host(master.tensor(), stream);
    const float* const values = here.data<float>();
    weights.insert(weights.end(), values, values + parameter.elements());
  });
  return weights;
}

inline RankOutcome train_rank(const HybridTrainerConfig& config, Communicator& others,
                              Device device = {}) {
  RankLinks links(others, config.distributed, device);
  Communicator& ranks = links.ranks();
  const Stream stream{make_device_pool(device)};
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream, make_host_pool(device), &ranks);
  RankOutcome outcome;
  while (trainer.steps_done() < kSteps) {
    const StepRecord record = trainer.step(step_batch(config, trainer.steps_done(), stream));
    outcome.losses.push_back(record.loss);
    outcome.phases.push_back(record.phase);
  }
  outcome.weights = master_values(*model, stream);
  outcome.bytes_sent = ranks.use().bytes_sent;
  return outcome;
}

inline RankOutcome train_alone(const HybridTrainerConfig& config, Device device = {}) {
  SingleCommunicator alone;
  return train_rank(config, alone, device);
}

inline std::vector<RankOutcome> train_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& rank) {
    outcomes[static_cast<std::size_t>(rank.rank())] = train_rank(config, rank);
  });
  return outcomes;
}

inline void expect_same(const RankOutcome& one, const RankOutcome& other, const std::string& what) {
  EXPECT_TRUE(one.weights == other.weights) << what;
  EXPECT_EQ(one.losses, other.losses) << what;
  EXPECT_EQ(one.phases, other.phases) << what;
}

}  // namespace hybrid_trainer
