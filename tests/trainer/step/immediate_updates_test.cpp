#include "src/trainer/step/micro_batches.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/observability/jsonl_sink.h"
#include "src/optim/make_optimizer.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

constexpr auto kGradients = static_cast<std::size_t>(MemoryKind::kGradients);

using testing::master_of;
using testing::test_stream;
using testing::values_of;

/// Three weights under SGD without momentum, whose gradients arrive one by one.
class ImmediateUpdatesTest : public ::testing::Test {
 protected:
  static OptimizerConfig sgd() {
    OptimizerConfig config;
    config.name = "sgd";
    config.momentum = 0;
    config.weight_decay = 0;
    return config;
  }
  void contribute(Parameter& parameter, float value) {
    const GradientContribution to(parameter, stream_);
    std::fill_n(to.gradient().data<float>(), parameter.elements(), value);
  }
  void begin() {
    updates_.begin(0.5f);
    begin_gradients(all_, updates_, 1);
  }
  static std::vector<double> all(double value) { return std::vector<double>(6, value); }

  const Stream stream_ = test_stream();
  Parameter first_{"first", {2, 3}, Role::kMatrix, stream_};
  Parameter second_{"second", {2, 3}, Role::kMatrix, stream_};
  Parameter third_{"third", {2, 3}, Role::kMatrix, stream_};
  const std::vector<Parameter*> all_{&first_, &second_, &third_};
  const std::unique_ptr<Optimizer> optimizer_ = make_optimizer(sgd(), all_, stream_, stream_);
  ImmediateUpdates updates_{all_, *optimizer_, stream_};
};

TEST_F(ImmediateUpdatesTest, CompleteGradientUpdatesWeightAndIsFreed) {
  first_.add_contributor();
  begin();
  contribute(first_, 2);
  contribute(second_, 1);
  EXPECT_EQ(values_of(master_of(first_)), all(0));
  EXPECT_EQ(values_of(master_of(second_)), all(-0.5));
  EXPECT_FALSE(second_.gradient().defined());
  contribute(first_, 2);
  EXPECT_EQ(values_of(master_of(first_)), all(-1));
  EXPECT_DOUBLE_EQ(updates_.end(), std::sqrt(6 * 4 + 6 * 1));
  EXPECT_EQ(optimizer_->steps_taken(), 1);
  EXPECT_EQ(stream_.pool()->use().live[kGradients], 0u);
}

TEST_F(ImmediateUpdatesTest, NonFiniteFirstGradientChangesNothing) {
  begin();
  contribute(third_, NAN);
  contribute(second_, 1);
  contribute(first_, 1);
  EXPECT_TRUE(std::isnan(updates_.end()));
  for (const Parameter* weight : all_) EXPECT_EQ(values_of(master_of(*weight)), all(0));
  EXPECT_EQ(optimizer_->steps_taken(), 0);
  updates_.require_whole();
  begin();
}

TEST_F(ImmediateUpdatesTest, NonFiniteLossChangesNothing) {
  begin();
  updates_.observe_loss(1);
  updates_.observe_loss(INFINITY);
  contribute(third_, 1);
  EXPECT_DOUBLE_EQ(updates_.end(), std::sqrt(6));
  EXPECT_EQ(values_of(master_of(third_)), all(0));
  begin();
  updates_.observe_loss(1);
  contribute(third_, 1);
  updates_.end();
  EXPECT_EQ(values_of(master_of(third_)), all(-0.5));
}

TEST_F(ImmediateUpdatesTest, LaterNonFiniteGradientEndsRun) {
  begin();
  contribute(third_, 1);
  contribute(second_, INFINITY);
  contribute(first_, 1);
  EXPECT_EQ(values_of(master_of(third_)), all(-0.5));
  EXPECT_EQ(values_of(master_of(second_)), all(0));
  EXPECT_EQ(values_of(master_of(first_)), all(0));
  EXPECT_THROW(updates_.end(), Diverged);
  EXPECT_THROW(updates_.require_whole(), Diverged);
  EXPECT_THROW(updates_.begin(0.5f), Diverged);
}

/// A config without options that need all gradients at the same time.
HybridTrainerConfig steady_config() {
  HybridTrainerConfig config = tiny_config();
  config.model.layers = 2;
  config.model.width = 64;
  config.training.steps = 12;
  config.phases.max_predict_steps = 0;
  config.optimizer.clip_norm = 0;
  config.divergence.max_skipped_updates = 0;
  return config;
}

TEST(ImmediateUpdateRuns, MatchesRunsThatKeepGradients) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  int runs = 0;
  const auto trained = [&](const HybridTrainerConfig& config) {
    const auto run = scratch / std::to_string(runs++);
    const TrainingRunResult result = train_tiny(config, scratch / "data", run);
    EXPECT_EQ(result.end, RunEnd::kFinished);
    std::string bits = newest_checkpoint_digest(run);
    for_each_record(run / "metrics.jsonl", [&](const StepRecord& record) {
      char text[64];
      std::snprintf(text, sizeof text, "\n%a %a", record.loss, record.gradient_norm.value());
      bits += text;
    });
    return std::pair(bits, result.summary);
  };
  const auto expect_same = [&](const char* what, const auto& change) {
    SCOPED_TRACE(what);
    HybridTrainerConfig config = steady_config();
    change(config);
    const auto [wanted, kept] = trained(config);
    config.memory.gradients = "consume";
    ASSERT_TRUE(config.updates_at_once());
    const auto [got, consumed] = trained(config);
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(consumed.file_peak_by_kind[kGradients], 0u);
    const bool several = config.gradient_accumulation.micro_batches > 1;  // summed on the host
    EXPECT_EQ(consumed.host_peak_by_kind[kGradients] > 0, several);
    EXPECT_LT(consumed.phase(Phase::kFull).sum.device_memory.peak[kGradients],
              kept.phase(Phase::kFull).sum.device_memory.peak[kGradients]);
  };
  expect_same("f32", [](auto&) {});
  expect_same("micro-batches in bf16", [](auto& config) {
    config.gradient_accumulation.micro_batches = 3;
    config.mixed_precision.full = "bf16";
  });
  expect_same("recomputed with dropout", [](auto& config) {
    config.memory.recompute = 0.7;
    config.model.dropout = 0.1;
  });
  expect_same("away on the host, 8 bits", [](auto& config) {
    config.memory.weights = config.memory.optimizer_state = "host";
    config.optimizer.name = "adamw";
    config.optimizer.state_bits = 8;
    config.mixed_precision.full = "bf16";
  });
  expect_same("away in a file", [](auto& config) {
    config.memory.weights = config.memory.optimizer_state = config.memory.activations = "file";
    config.optimizer.name = "muon";
    config.optimizer.orthogonalization_period = 2;
  });
}

TEST(ImmediateUpdateRuns, IncompatibleSettingsDisableUpdates) {
  HybridTrainerConfig config = steady_config();
  config.memory.gradients = "consume";
  EXPECT_TRUE(config.updates_at_once());
  const auto expect_not = [&](const auto& change) {
    HybridTrainerConfig changed = config;
    change(changed);
    EXPECT_FALSE(changed.updates_at_once());
  };
  expect_not([](auto& c) { c.memory.gradients = "keep"; });
  expect_not([](auto& c) { c.optimizer.clip_norm = 1; });
  expect_not([](auto& c) { c.divergence.max_skipped_updates = 1; });
  expect_not([](auto& c) { c.phases.max_predict_steps = 1; });
  expect_not([](auto& c) { c.optimizer.paged = true; });
}

}  // namespace
}  // namespace hybrid_trainer
