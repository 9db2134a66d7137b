#include "src/trainer/local_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "tests/trainer/late_ranks.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig local_config(const std::string& optimizer = "adamw") {
  HybridTrainerConfig config = late_config(optimizer);
  config.phases.local_steps = 5;
  return config;
}

TEST(LocalSteps, LeaveAllRanksTheSameWeightsInTheEndWhateverTheLinkIs) {
  for (const char* const optimizer : {"adamw", "muon"}) {
    for (const int ranks : {2, 3}) {
      HybridTrainerConfig config = local_config(optimizer);
      const RankOutcome wanted = common_outcome(config, ranks);
      config.distributed.imitated_link.bytes = 10'000'000;
      config.distributed.imitated_latency_microseconds = 2000;
      EXPECT_TRUE(common_outcome(config, ranks).weights == wanted.weights) << optimizer;
      config.distributed.overlap = false;
      EXPECT_TRUE(common_outcome(config, ranks).weights == wanted.weights) << optimizer;
    }
  }
}

TEST(LocalSteps, EverySettingOfThemCounts) {
  std::vector<std::vector<float>> seen;
  const auto expect_new = [&](const char* what, const auto& change) {
    HybridTrainerConfig config = local_config();
    change(config);
    const std::vector<float> weights = common_outcome(config, 2).weights;
    for (const float weight : weights) EXPECT_TRUE(std::isfinite(weight)) << what;
    EXPECT_TRUE(std::find(seen.begin(), seen.end(), weights) == seen.end()) << what;
    seen.push_back(weights);
  };
  expect_new("as it is", [](auto&) {});
  expect_new("no local steps", [](auto& c) { c.phases.local_steps = 0; });
  expect_new("fewer local steps", [](auto& c) { c.phases.local_steps = 3; });
  expect_new("lag", [](auto& c) { c.phases.lag = 2; });
  expect_new("outer rate", [](auto& c) { c.phases.outer_learning_rate = 1; });
  expect_new("outer momentum", [](auto& c) { c.phases.outer_momentum = 0.5; });
  expect_new("clip", [](auto& c) { c.optimizer.clip_norm = 0.1; });
  expect_new("bf16", [](auto& c) { c.mixed_precision.full = c.mixed_precision.predict = "bf16"; });
}

TEST(LocalSteps, SendFarLessThanGradients) {
  const auto sent = [](std::int64_t local_steps) {
    HybridTrainerConfig config = late_config();
    config.phases.warmup_steps = 0;
    config.phases.max_predict_steps = 24;
    config.phases.local_steps = local_steps;
    return static_cast<double>(common_outcome(config, 2).bytes_sent);
  };
  // 24 gradients, against four exchanges, the last of which ends Predict, and the moments.
  EXPECT_LT(sent(8), 0.5 * sent(0));
}

TEST(LocalSteps, EndWithTheMeanOfTheirWeights) {
  const HybridTrainerConfig config = local_config();
  std::array<std::vector<float>, 2> own;
  std::array<std::vector<float>, 2> settled;
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](Communicator& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    while (trainer.steps_done() < 11)
      trainer.step(step_batch(config, trainer.steps_done(), stream));
    EXPECT_EQ(trainer.phase(), Phase::kPredict);
    own[i] = master_values(*model, stream);
    trainer.save((folder / "checkpoints").string());  // settles
    settled[i] = master_values(*model, stream);
  });
  EXPECT_NE(own[0], own[1]);
  EXPECT_EQ(settled[0], settled[1]);
  for (std::size_t i = 0; i < own[0].size(); ++i) {
    const double mean = (static_cast<double>(own[0][i]) + static_cast<double>(own[1][i])) / 2;
    ASSERT_NEAR(static_cast<double>(settled[0][i]), mean, 1e-6);
  }
}

TEST(LocalSteps, EvaluateTheCommonWeights) {
  std::array<std::vector<float>, 2> own, common;
  see_steps(local_config(), 2, 12,
            [&](int rank, auto&, HybridTrainer& trainer, LossModel& model, const Stream& stream) {
              const auto i = static_cast<std::size_t>(rank);
              own[i] = master_values(model, stream);
              trainer.with_exact_weights([&] { common[i] = master_values(model, stream); });
              EXPECT_EQ(master_values(model, stream), own[i]);
            });
  EXPECT_NE(own[0], own[1]);
  EXPECT_EQ(common[0], common[1]);
}

TEST(LocalSteps, ThatAreNotFiniteMakeNoUpdateAndAreTold) {
  const HybridTrainerConfig config = local_config();
  std::array<std::string, 2> events;
  std::array<std::vector<float>, 2> weights;
  run_thread_ranks(2, [&](Communicator& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    float* first = nullptr;
    model->visit_parameters([&](Parameter& parameter) {
      if (first == nullptr) first = parameter.home_master().data<float>();
    });
    while (trainer.steps_done() < 25) {
      const bool breaks = trainer.steps_done() == 10 && ranks.rank() == 1;
      const float before = *first;
      if (breaks) *first = std::numeric_limits<float>::quiet_NaN();
      events[i] += trainer.step(step_batch(config, trainer.steps_done(), stream)).event;
      if (breaks) *first = before;
    }
    weights[i] = master_values(*model, stream);
  });
  for (const std::string& told : events)
    EXPECT_NE(told.find("1 of 10 steps that ranks made by themselves"), std::string::npos) << told;
  EXPECT_EQ(weights[0], weights[1]);
  for (const float weight : weights[0]) ASSERT_TRUE(std::isfinite(weight));
}

TEST(LocalSteps, GoOnFromACheckpointAsIfNeverStopped) {
  for (const std::int64_t stop : {6, 9, 13, 14, 20, 23}) {
    const HybridTrainerConfig config = local_config();
    const TemporaryFolder folder;
    const auto whole = train_through(config, false, stop, folder);
    EXPECT_EQ(train_through(config, true, stop, folder), whole) << "stopped after step " << stop;
    EXPECT_EQ(whole[0], whole[1]);
  }
}

TEST(LocalSteps, WantAnExchangeToArriveBeforeTheNext) {
  HybridTrainerConfig config = local_config();
  config.phases.lag = 5;
  EXPECT_THROW(train_ranks(config, 2), ConfigError);
  config.phases.lag = 4;
  common_outcome(config, 2);
  config.phases.local_steps = config.phases.max_predict_steps;
  EXPECT_THROW(train_ranks(config, 2), ConfigError);
  config.phases.local_steps = 5;
  config.phases.device_side = "shared";
  EXPECT_THROW(train_ranks(config, 2), ConfigError);
}

}  // namespace
}  // namespace hybrid_trainer
