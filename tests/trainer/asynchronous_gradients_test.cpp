#include "phases/asynchronous_gradients/delayed_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/distributed/decorated_communicator.h"
#include "tests/trainer/late_ranks.h"

namespace hybrid_trainer {
namespace {

/// With zero 1, each rank predicts its own shard of the weights for all ranks.
class LateGradientsWithZero : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static HybridTrainerConfig config_of(const std::string& optimizer = "adamw") {
    return late_config(optimizer, GetParam());
  }
  /// Matrices of more than one chunk, so that shards end within weights.
  static HybridTrainerConfig cut_config() {
    HybridTrainerConfig config = config_of();
    config.model.width = 80;
    return config;
  }
};

INSTANTIATE_TEST_SUITE_P(Each, LateGradientsWithZero, ::testing::Values(0, 1),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(LateGradientsWithZero, AllRanksReproduceSameWeights) {
  for (const char* const optimizer : {"adamw", "muon"}) {
    for (const int ranks : {2, 3, 4}) {
      const HybridTrainerConfig config = config_of(optimizer);
      EXPECT_EQ(common_outcome(config, ranks), common_outcome(config, ranks)) << optimizer;
    }
  }
  EXPECT_EQ(common_outcome(cut_config(), 3), common_outcome(cut_config(), 3));
}

TEST_P(LateGradientsWithZero, OverlapAndLinkSpeedDoNotChangeResults) {
  for (const std::int64_t lag : {1, 2}) {
    HybridTrainerConfig config = cut_config();
    config.phases.asynchronous_gradients.delay = lag;
    const RankOutcome wanted = common_outcome(config, 2);
    config.distributed.overlap = false;
    EXPECT_EQ(common_outcome(config, 2), wanted) << "without overlap, lag " << lag;
    config.distributed.overlap = true;
    config.distributed.simulated_link.bytes = 100'000'000;
    config.distributed.simulated_latency_microseconds = 1000;
    EXPECT_EQ(common_outcome(config, 2), wanted) << "a slow link, lag " << lag;
  }
}

TEST_P(LateGradientsWithZero, EverySettingChangesWeights) {
  std::vector<std::vector<float>> seen;
  const auto expect_new = [&](const char* what, const auto& change) {
    HybridTrainerConfig config = config_of();
    change(config);
    const std::vector<float> weights = common_outcome(config, 2).weights;
    for (const float weight : weights) EXPECT_TRUE(std::isfinite(weight)) << what;
    EXPECT_TRUE(std::find(seen.begin(), seen.end(), weights) == seen.end()) << what;
    seen.push_back(weights);
  };
  expect_new("anticipated", [](auto&) {});
  expect_new("shared", [](auto& c) { c.phases.asynchronous_gradients.device_side = "shared"; });
  expect_new("momentum", [](auto& c) { c.phases.asynchronous_gradients.device_side = "momentum"; });
  expect_new("none", [](auto& c) { c.phases.asynchronous_gradients.device_side = "none"; });
  expect_new("lag", [](auto& c) { c.phases.asynchronous_gradients.delay = 3; });
  expect_new("bf16", [](auto& c) { c.mixed_precision.full = c.mixed_precision.predict = "bf16"; });
  const HybridTrainerConfig synchronous = [] {
    HybridTrainerConfig config = config_of();
    config.phases.method = "skip_backward";
    config.phases.max_predict_steps = 0;
    return config;
  }();
  EXPECT_TRUE(std::find(seen.begin(), seen.end(), train_ranks(synchronous, 2)[0].weights) ==
              seen.end());
}

TEST_P(LateGradientsWithZero, ExactWeightsAgreeAcrossRanksInPredict) {
  std::array<std::vector<float>, 2> predicted, exact;
  see_steps(cut_config(), 2, 12,
            [&](int rank, auto&, HybridTrainer& trainer, LossModel& model, const Stream& stream) {
              const auto i = static_cast<std::size_t>(rank);
              predicted[i] = master_values(model, stream);
              trainer.with_exact([&] { exact[i] = master_values(model, stream); });
              EXPECT_EQ(master_values(model, stream), predicted[i]);
            });
  EXPECT_EQ(predicted[0] == predicted[1], GetParam() == 1)
      << "only with zero 1 the ranks share a prediction";
  EXPECT_EQ(exact[0], exact[1]);
  EXPECT_NE(exact[0], predicted[0]);
}

/// Mean prediction error over Predict's steps. Expects the same errors on both ranks.
double mean_error(const HybridTrainerConfig& config) {
  std::array<std::vector<double>, 2> errors;
  see_steps(config, 2, 20, [&](int rank, const StepRecord& record, auto&&...) {
    if (record.prediction_error)
      errors[static_cast<std::size_t>(rank)].push_back(*record.prediction_error);
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_GE(errors[0].size(), 9u);
  double sum = 0;
  for (const double error : errors[0]) sum += error;
  return sum / static_cast<double>(errors[0].size());
}

TEST_P(LateGradientsWithZero, PredictionMoreThanHalvesError) {
  HybridTrainerConfig config = cut_config();
  for (const char* const side : {"anticipated", "shared", "momentum"}) {
    config.phases.asynchronous_gradients.device_side = side;
    EXPECT_LT(mean_error(config), 0.5) << side;
  }
  config.phases.asynchronous_gradients.device_side = "none";
  EXPECT_NEAR(mean_error(config), 1, 1e-6);
}

TEST_P(LateGradientsWithZero, LargeErrorEndsPredictOnAllRanks) {
  HybridTrainerConfig config = config_of();
  config.phases.asynchronous_gradients.prediction_error_limit = 0.01;
  std::array<std::string, 2> events;
  std::array<int, 2> predicted{};
  see_steps(config, 2, 20, [&](int rank, const StepRecord& record, auto&&...) {
    events[static_cast<std::size_t>(rank)] += record.event;
    predicted[static_cast<std::size_t>(rank)] += record.phase == Phase::kPredict;
  });
  EXPECT_EQ(predicted[0], predicted[1]);
  EXPECT_LT(predicted[0], 8);
  EXPECT_NE(events[0].find("above phases.asynchronous_gradients.prediction_error_limit"),
            std::string::npos)
      << events[0];
}

TEST_P(LateGradientsWithZero, NonFiniteGradientSkipsUpdateOnAllRanks) {
  const HybridTrainerConfig config = config_of();
  std::array<int, 2> skipped{};
  std::array<std::vector<float>, 2> exact;
  run_thread_ranks(2, [&](Communicator& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    while (trainer.steps_done() < 25) {
      float* broken = nullptr;
      if (trainer.steps_done() == 11 && ranks.rank() == 1) {
        model->visit_parameters([&](Parameter& parameter) {
          if (broken == nullptr) broken = parameter.master_in_place().data<float>();
        });
        *broken = std::numeric_limits<float>::quiet_NaN();
      }
      const StepRecord record = trainer.step(step_batch(config, trainer.steps_done(), stream));
      skipped[i] += record.event.find("skipped the update") != std::string::npos;
    }
    exact[i] = master_values(*model, stream);
  });
  EXPECT_EQ(skipped[0], 1);
  EXPECT_EQ(skipped[1], 1);
  EXPECT_EQ(exact[0], exact[1]);
  for (const float weight : exact[0]) ASSERT_TRUE(std::isfinite(weight));
}

TEST_P(LateGradientsWithZero, ResumeMatchesUninterruptedRun) {
  for (const std::int64_t lag : {1, 2}) {
    for (const std::int64_t stop : {6, 9, 12, 20, 21}) {
      HybridTrainerConfig config = config_of();
      config.phases.asynchronous_gradients.delay = lag;
      const TemporaryFolder folder;
      const auto whole = train_through(config, false, stop, folder);
      EXPECT_EQ(train_through(config, true, stop, folder), whole) << "stopped after step " << stop;
      EXPECT_EQ(whole[0], whole[1]);
    }
  }
}

/// Records which collectives begin in the background or are waited for, and counts direct calls.
class SeenCalls final : public DecoratedCommunicator {
 public:
  explicit SeenCalls(Communicator& ranks) : DecoratedCommunicator(ranks) {}
  CollectiveTicket begin(CollectiveJob job, const Stream& stream) override {
    ranks().begin(std::move(job), stream);  // already done for ranks that are threads
    begun.push_back(++last_);
    return last_;
  }
  void wait_for(CollectiveTicket job, const Stream&) override { waited_for.push_back(job); }
  std::vector<CollectiveTicket> begun, waited_for;
  int direct = 0;

 protected:
  void make(const Stream*, const std::function<void()>& call) override {
    ++direct;
    call();
  }

 private:
  CollectiveTicket last_ = 0;
};

/// A single worker runs the collectives in order, so the gradient sum, which may be late, comes
/// after the weights that the next step needs first.
TEST_P(LateGradientsWithZero, NextStepAwaitsCollectivesInOrder) {
  const HybridTrainerConfig config = config_of();
  run_thread_ranks(2, [&](Communicator& others) {
    SeenCalls ranks(others);
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    std::vector<CollectiveTicket> before;
    int predicted = 0;
    while (trainer.steps_done() < 20) {
      ranks.begun.clear();
      ranks.waited_for.clear();
      ranks.direct = 0;
      const StepRecord record = trainer.step(step_batch(config, trainer.steps_done(), stream));
      predicted += record.phase == Phase::kPredict;
      if (predicted > 1) {
        EXPECT_EQ(ranks.waited_for, before);
        EXPECT_EQ(ranks.direct, 0);
      }
      before = ranks.begun;
      if (predicted > 0) {
        EXPECT_EQ(before.size() > 1, GetParam() == 1) << "only zero 1 also sends weights";
      }
    }
    EXPECT_EQ(predicted, 12);
  });
}

/// The highest cost of any rank in Predict: peak bytes by kind, and bytes sent per step.
struct PredictCost {
  std::array<double, kMemoryKinds> bytes{};
  double sent = 0;
};

PredictCost most_in_predict(const HybridTrainerConfig& config, int ranks) {
  std::vector<PredictCost> costs(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& others) {
    PredictCost& cost = costs[static_cast<std::size_t>(others.rank())];
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &others);
    while (trainer.steps_done() < 12) {
      const std::uint64_t before = others.use().bytes_sent;
      trainer.step(step_batch(config, trainer.steps_done(), stream));
      cost.sent = static_cast<double>(others.use().bytes_sent - before);
    }
    const MemoryUse use = stream.pool()->use();
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
      cost.bytes[kind] = static_cast<double>(use.peak[kind]);
  });
  PredictCost most;
  for (const PredictCost& cost : costs) {
    most.sent = std::max(most.sent, cost.sent);
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
      most.bytes[kind] = std::max(most.bytes[kind], cost.bytes[kind]);
  }
  return most;
}

TEST(LateGradients, ZeroOneShardsStateAtSameTraffic) {
  constexpr double kRanks = 4;
  HybridTrainerConfig config = late_config();
  config.model.width = 80;
  config.model.layers = 8;
  config.mixed_precision.full = config.mixed_precision.predict = "fp32";
  const PredictCost whole = most_in_predict(config, 4);
  config.distributed.zero = 1;
  const PredictCost shared = most_in_predict(config, 4);
  const auto share = [&](MemoryKind kind) {
    const auto i = static_cast<std::size_t>(kind);
    return shared.bytes[i] / whole.bytes[i];
  };
  EXPECT_NEAR(share(MemoryKind::kOptimizerState), 1 / kRanks, 0.02);
  EXPECT_NEAR(share(MemoryKind::kParameters), (1 + 1 / kRanks) / 2, 0.02);
  EXPECT_LT(share(MemoryKind::kGradients), 1);
  EXPECT_NEAR(shared.sent / whole.sent, 1, 0.02);
}

TEST(LateGradients, RejectsIncompatibleSettings) {
  const auto expect_refused = [](const std::string& key, int ranks, const auto& change) {
    HybridTrainerConfig config = late_config();
    change(config);
    try {
      train_ranks(config, ranks);
      ADD_FAILURE() << key << " was not refused";
    } catch (const ConfigError& error) {
      ASSERT_EQ(error.problems().size(), 1u);
      EXPECT_TRUE(error.problems()[0].starts_with(key + ": got ")) << error.what();
      EXPECT_NE(error.problems()[0].find("want "), std::string::npos) << error.what();
    }
  };
  expect_refused("phases.method", 1, [](auto&) {});
  expect_refused("distributed.zero", 2, [](auto& c) { c.distributed.zero = 2; });
  expect_refused("distributed.zero", 2, [](auto& c) {
    c.distributed.zero = 1;
    set_local_steps(c.phases, 4);
  });
  expect_refused("optimizer.name", 2, [](auto& c) { c.optimizer.name = "lion"; });
  expect_refused("optimizer.state_bits", 2, [](auto& c) { c.optimizer.state_bits = 8; });
  expect_refused("optimizer.paged", 2, [](auto& c) { c.optimizer.paged = true; });
  expect_refused("optimizer.slow_momentum", 2, [](auto& c) { c.optimizer.slow_momentum = 0.5; });
  expect_refused("training.average_weights", 2, [](auto& c) { c.training.average_weights = 4; });
  expect_refused("memory.optimizer_state", 2, [](auto& c) { c.memory.optimizer_state = "host"; });
  expect_refused("memory.weights", 2, [](auto& c) { c.memory.weights = "host"; });
  expect_refused("memory.device_map", 2, [](auto& c) { c.memory.device_map = "block.0=host"; });
  expect_refused("phases.asynchronous_gradients.device_side", 2,
                 [](auto& c) { c.phases.asynchronous_gradients.device_side = "sketch"; });
  expect_refused("divergence.on_warning", 2,
                 [](auto& c) { c.divergence.on_warning = Recovery::kResetPredictor; });
}

}  // namespace
}  // namespace hybrid_trainer
