#include "phases/local_sgd/local_training.h"

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
  set_local_steps(config.phases, 5);
  return config;
}

struct ExchangeForm {
  std::int64_t fragments = 1, bits = 32;
};

HybridTrainerConfig exchanged(HybridTrainerConfig config, const ExchangeForm& form) {
  config.phases.local_sgd.fragments = form.fragments;
  config.phases.local_sgd.exchange_bits = form.bits;
  return config;
}

std::string exchange_name(const ExchangeForm& form) {
  return concat(form.fragments, " fragments, ", form.bits, " bits");
}

TEST(LocalSteps, AllRanksEndWithSameWeightsOnAnyLink) {
  for (const ExchangeForm& form : {ExchangeForm{}, {3, 32}, {1, 8}, {5, 4}}) {
    for (const char* const optimizer : {"adamw", "muon"}) {
      for (const int ranks : {2, 3}) {
        SCOPED_TRACE(concat(exchange_name(form), ", ", optimizer, ", ", ranks, " ranks"));
        HybridTrainerConfig config = exchanged(local_config(optimizer), form);
        const RankOutcome wanted = common_outcome(config, ranks);
        config.distributed.simulated_link.bytes = 10'000'000;
        config.distributed.simulated_latency_microseconds = 1000;
        EXPECT_TRUE(common_outcome(config, ranks).weights == wanted.weights);
        config.distributed.overlap = false;
        EXPECT_TRUE(common_outcome(config, ranks).weights == wanted.weights);
      }
    }
  }
}

TEST(LocalSteps, EverySettingChangesWeights) {
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
  expect_new("no local steps", [](auto& c) { set_local_steps(c.phases, 0); });
  expect_new("fewer local steps", [](auto& c) { set_local_steps(c.phases, 3); });
  expect_new("lag", [](auto& c) { c.phases.local_sgd.delay = 2; });
  expect_new("fragments", [](auto& c) { c.phases.local_sgd.fragments = 2; });
  expect_new("more fragments", [](auto& c) { c.phases.local_sgd.fragments = 5; });
  expect_new("8 bits", [](auto& c) { c.phases.local_sgd.exchange_bits = 8; });
  expect_new("4 bits", [](auto& c) { c.phases.local_sgd.exchange_bits = 4; });
  expect_new("outer rate", [](auto& c) { c.phases.local_sgd.outer_learning_rate = 1; });
  expect_new("outer momentum", [](auto& c) { c.phases.local_sgd.outer_momentum = 0.5; });
  expect_new("clip", [](auto& c) { c.optimizer.clip_norm = 0.1; });
  expect_new("bf16", [](auto& c) { c.mixed_precision.full = c.mixed_precision.predict = "bf16"; });
}

TEST(LocalSteps, SendsLessThanHalfOfGradientBytes) {
  const auto sent = [](std::int64_t local_steps) {
    HybridTrainerConfig config = late_config();
    config.phases.warmup_steps = 0;
    config.phases.max_predict_steps = 24;
    set_local_steps(config.phases, local_steps);
    return static_cast<double>(common_outcome(config, 2).bytes_sent);
  };
  // Compares 24 gradients with four exchanges, the last of which ends Predict, and the moments.
  EXPECT_LT(sent(8), 0.5 * sent(0));
}

/// Bytes that rank 0 sends in each step of Predict, with blocking exchanges.
std::vector<double> bytes_by_step(const ExchangeForm& form) {
  HybridTrainerConfig config = exchanged(late_config(), form);
  config.model.width = 64;
  set_local_steps(config.phases, 4);
  std::vector<double> bytes;
  run_thread_ranks(3, [&](Communicator& ranks) {
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    while (trainer.steps_done() < 20) {
      const std::uint64_t before = ranks.use().bytes_sent;
      const Phase phase = trainer.step(step_batch(config, trainer.steps_done(), stream)).phase;
      if (phase != Phase::kPredict || ranks.rank() != 0) continue;
      bytes.push_back(static_cast<double>(ranks.use().bytes_sent - before));
    }
  });
  EXPECT_EQ(bytes.size(), 12u);
  return bytes;
}

TEST(LocalSteps, SpreadsFragmentsOverSteps) {
  const std::vector<double> whole = bytes_by_step({}), parts = bytes_by_step({4, 32}),
                            halves = bytes_by_step({2, 32});
  EXPECT_GT(whole[3], 1e5);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(whole[i], i % 4 == 3 ? whole[3] : 0) << i;
    EXPECT_NEAR(parts[i] / whole[3], 0.25, 0.002) << i;
    EXPECT_NEAR(halves[i] / whole[3], i % 2 == 1 ? 0.5 : 0, 0.002) << i;
  }
}

TEST(LocalSteps, SentBytesMatchExchangeBits) {
  const double whole = bytes_by_step({})[3];
  EXPECT_NEAR(bytes_by_step({1, 8})[3] / whole, (8 + 32 / 256.0) / 32, 0.005);
  EXPECT_NEAR(bytes_by_step({1, 4})[3] / whole, (4 + 32 / 64.0) / 32, 0.005);
  EXPECT_NEAR(bytes_by_step({2, 4})[1] / whole, (4 + 32 / 64.0) / 32 / 2, 0.005);
}

/// Weights of two ranks after a number of steps, and after a checkpoint has averaged them.
struct SettledWeights {
  std::array<std::vector<float>, 2> own, settled;
};

SettledWeights settle_after(std::int64_t steps, const HybridTrainerConfig& config) {
  SettledWeights weights;
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](Communicator& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    while (trainer.steps_done() < steps)
      trainer.step(step_batch(config, trainer.steps_done(), stream));
    EXPECT_EQ(trainer.machine().phase(), Phase::kPredict);
    weights.own[i] = master_values(*model, stream);
    trainer.save((folder / "checkpoints").string());  // averages the weights
    weights.settled[i] = master_values(*model, stream);
  });
  EXPECT_NE(weights.own[0], weights.own[1]);
  EXPECT_EQ(weights.settled[0], weights.settled[1]);
  return weights;
}

void expect_the_mean(const SettledWeights& weights) {
  for (std::size_t i = 0; i < weights.own[0].size(); ++i) {
    const double mean =
        (static_cast<double>(weights.own[0][i]) + static_cast<double>(weights.own[1][i])) / 2;
    ASSERT_NEAR(static_cast<double>(weights.settled[0][i]), mean, 1e-6);
  }
}

TEST(LocalSteps, EndsWithMeanOfRankWeights) {
  expect_the_mean(settle_after(11, local_config()));
  expect_the_mean(settle_after(11, exchanged(local_config(), {1, 4})));
}

/// Exchanges set the weights to the mean itself.
TEST(LocalSteps, EndsWithMeanAfterAveragingExchanges) {
  HybridTrainerConfig config = local_config();
  config.phases.local_sgd.outer_learning_rate = 1;
  config.phases.local_sgd.outer_momentum = 0;
  for (const std::int64_t steps : {11, 13, 14, 17})
    for (const ExchangeForm& form : {ExchangeForm{}, {2, 32}, {5, 32}}) {
      SCOPED_TRACE(concat(exchange_name(form), ", ", steps, " steps"));
      expect_the_mean(settle_after(steps, exchanged(config, form)));
    }
}

/// Saves while a low-bit exchange is pending; its rounding errors must not be lost.
TEST(LocalSteps, FinalMeanIncludesRoundingErrors) {
  HybridTrainerConfig config = local_config();
  config.phases.local_sgd.outer_learning_rate = 1;
  config.phases.local_sgd.outer_momentum = 0;
  expect_the_mean(settle_after(13, exchanged(config, {1, 4})));
  expect_the_mean(settle_after(13, exchanged(config, {1, 8})));
  expect_the_mean(settle_after(11, exchanged(config, {2, 4})));
}

TEST(LocalSteps, RecordsStepsSinceExchangeBegan) {
  std::vector<std::int64_t> lags;
  see_steps(exchanged(local_config(), {2, 32}), 2, 20,
            [&](int rank, const StepRecord& record, auto&, LossModel&, const Stream&) {
              if (rank == 0 && record.phase == Phase::kPredict)
                lags.push_back(record.lag.value_or(-1));
            });
  EXPECT_EQ(lags, (std::vector<std::int64_t>{1, 2, 3, 1, 2, 1, 2, 3, 1, 2, 1, 2}));
}

class LocalStepExchanges : public ::testing::TestWithParam<ExchangeForm> {};

/// All ranks have the common weights after each step. They change when exchanges arrive.
TEST_P(LocalStepExchanges, EvaluationUsesCommonWeights) {
  std::array<std::vector<std::vector<float>>, 2> own, common;
  see_steps(exchanged(local_config(), GetParam()), 2, 16,
            [&](int rank, auto&, HybridTrainer& trainer, LossModel& model, const Stream& stream) {
              const auto i = static_cast<std::size_t>(rank);
              own[i].push_back(master_values(model, stream));
              trainer.with_exact([&] { common[i].push_back(master_values(model, stream)); });
              EXPECT_EQ(master_values(model, stream), own[i].back());
            });
  EXPECT_NE(own[0].back(), own[1].back());
  EXPECT_EQ(common[0], common[1]);
  EXPECT_NE(common[0][8], common[0].back());
}

TEST_P(LocalStepExchanges, NonFiniteStepIsSkippedAndReportedOnce) {
  const HybridTrainerConfig config = exchanged(local_config(), GetParam());
  std::array<std::string, 2> events;
  std::array<std::vector<float>, 2> weights;
  run_thread_ranks(2, [&](Communicator& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    const Stream stream{MemoryPool::create("device")};
    const auto model = make_model(config.model, 1, stream);
    HybridTrainer trainer(*model, config, stream, MemoryPool::create("host"), &ranks);
    float* first = nullptr;
    model->visit_parameters([&](Parameter& parameter) {
      if (first == nullptr) first = parameter.master_in_place().data<float>();
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
  for (const std::string& told : events) {
    const std::string wanted = "1 of 10 independent steps of the ranks";
    EXPECT_NE(told.find(wanted), std::string::npos) << told;
    EXPECT_EQ(told.find("of the ranks"), told.rfind("of the ranks")) << "once: " << told;
  }
  EXPECT_EQ(weights[0], weights[1]);
  for (const float weight : weights[0]) ASSERT_TRUE(std::isfinite(weight));
}

TEST_P(LocalStepExchanges, ResumeMatchesUninterruptedRun) {
  for (const std::int64_t stop : {6, 9, 13, 14, 16, 20, 23}) {
    const HybridTrainerConfig config = exchanged(local_config(), GetParam());
    const TemporaryFolder folder;
    const auto whole = train_through(config, false, stop, folder);
    EXPECT_EQ(train_through(config, true, stop, folder), whole) << "stopped after step " << stop;
    EXPECT_EQ(whole[0], whole[1]);
  }
}

// With five fragments, none that includes the first weight begins or ends in the failing step.
INSTANTIATE_TEST_SUITE_P(LocalSteps, LocalStepExchanges,
                         ::testing::Values(ExchangeForm{}, ExchangeForm{5, 32}, ExchangeForm{1, 8},
                                           ExchangeForm{5, 4}),
                         [](const auto& info) {
                           return concat("InFragments", info.param.fragments, "By",
                                         info.param.bits);
                         });

TEST(LocalSteps, RejectsDelayBeyondNextExchange) {
  HybridTrainerConfig config = local_config();
  config.phases.local_sgd.delay = 5;
  EXPECT_THROW(train_ranks(config, 2), ConfigError);
  config.phases.local_sgd.delay = 4;
  common_outcome(config, 2);
  set_local_steps(config.phases, config.phases.max_predict_steps);
  EXPECT_THROW(train_ranks(config, 2), ConfigError);
}

TEST(LocalSteps, RejectsUnknownExchangeForms) {
  const auto told = [](std::int64_t local_steps, const ExchangeForm& form) {
    HybridTrainerConfig config = exchanged(late_config(), form);
    set_local_steps(config.phases, local_steps);
    const std::vector<std::string> problems = config.problems();
    return problems.empty() ? "" : problems.size() == 1 ? problems[0] : "several";
  };
  EXPECT_EQ(told(5, {5, 4}), "");
  EXPECT_EQ(told(5, {6, 32}),
            "phases.local_sgd.fragments: got 6, but each fragment is exchanged at a different step "
            "(with phases.method local_sgd); want at most phases.local_sgd.steps 5");
  EXPECT_EQ(told(5, {1, 16}),
            "phases.local_sgd.exchange_bits: got 16, but exchanges do not support this number of "
            "bits (with phases.method local_sgd); want 32, 8 or 4");
  // Without local steps, the settings merely have no effect.
  EXPECT_EQ(told(0, {2, 16}), "");
}

}  // namespace
}  // namespace hybrid_trainer
