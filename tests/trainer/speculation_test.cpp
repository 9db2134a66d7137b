#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/core/machine.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

std::vector<double> losses_of(const std::filesystem::path& run) {
  std::vector<double> losses;
  for (const StepRecord& record : records_of(run)) losses.push_back(record.loss);
  return losses;
}

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Case {
  std::string optimizer, device_side, exact_state, precision;
  std::int64_t lag, gradient_bits = 32;
  std::string family = "gpt2";
};

class Speculation : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    prepare_tiny_data(folder_->path() / "data");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static HybridTrainerConfig config() {
    HybridTrainerConfig config = tiny_config();
    const Case& given = GetParam();
    config.model = tiny_model(given.family);
    config.optimizer.name = given.optimizer;
    config.optimizer.orthogonalization_period = 3;
    config.phases.method = "asynchronous_optimizer";
    config.phases.asynchronous_optimizer.delay = given.lag;
    config.phases.asynchronous_optimizer.device_side = given.device_side;
    config.phases.asynchronous_optimizer.exact_state = given.exact_state;
    config.phases.asynchronous_optimizer.prediction_error_limit = 0;
    config.phases.max_predict_steps = 7;
    config.phases.full_steps = 3;
    config.mixed_precision.warmup = config.mixed_precision.full = given.precision;
    config.mixed_precision.correct = given.precision;
    config.memory.gradient_bits = given.gradient_bits;
    return config;
  }
  std::filesystem::path run(const std::string& name) const { return scratch_ / name; }
  TemporaryFolder scratch_;
  std::filesystem::path data() const { return folder_->path() / "data"; }
  static std::unique_ptr<TemporaryFolder> folder_;
};
std::unique_ptr<TemporaryFolder> Speculation::folder_;

void PrintTo(const Case& given, std::ostream* out) {
  *out << given.optimizer << ' ' << given.device_side << ' ' << given.lag;
}
std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const Case& given = info.param;
  return concat(given.optimizer, "_", given.device_side, "_", given.exact_state, "_",
                given.precision, "_", given.lag, given.gradient_bits == 16 ? "_rounded" : "",
                given.family == "gpt2" ? "" : "_" + given.family);
}

INSTANTIATE_TEST_SUITE_P(
    All, Speculation,
    ::testing::Values(
        Case{"adamw", "anticipated", "host", "fp32", 1}, Case{"adamw", "sketch", "file", "bf16", 2},
        Case{"muon", "anticipated", "file", "bf16", 1}, Case{"muon", "sketch", "host", "fp32", 3},
        Case{"lion", "anticipated", "host", "bf16", 2}, Case{"adamw", "none", "host", "fp32", 1},
        Case{"adamw", "selective", "file", "bf16", 1}, Case{"muon", "selective", "host", "fp32", 3},
        Case{"lion", "selective", "file", "fp32", 2},
        Case{"adamw", "anticipated", "file", "bf16", 1, 16},
        Case{"adamw", "anticipated", "host", "fp32", 1, 16},
        Case{"muon", "anticipated", "file", "bf16", 1, 16},
        Case{"adamw", "none", "host", "bf16", 1, 16},
        Case{"adamw", "anticipated", "host", "fp32", 1, 32, "granitemoehybrid"}),
    name_of_case);

TEST_P(Speculation, WithoutPredictMatchesPlainTraining) {
  HybridTrainerConfig late = config(), plain = config();
  late.phases.max_predict_steps = plain.phases.max_predict_steps = 0;
  plain.phases.method = "skip_backward";
  plain.memory.gradient_bits = 32;
  train_tiny(late, data(), run("late"));
  train_tiny(plain, data(), run("plain"));
  if (GetParam().gradient_bits == 32) {
    EXPECT_EQ(losses_of(run("late")), losses_of(run("plain")));
    return;
  }
  const std::vector<double> rounded = losses_of(run("late")), exact = losses_of(run("plain"));
  EXPECT_EQ(rounded.front(), exact.front());
  EXPECT_NE(rounded, exact);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 0.02) << i;
}

TEST_P(Speculation, RecordsLagAndEndsInCorrect) {
  train_tiny(config(), data(), run("run"));
  const std::vector<StepRecord> records = records_of(run("run"));
  std::int64_t late = 0, errors = 0;
  for (const StepRecord& record : records) {
    ASSERT_TRUE(record.lag.has_value());
    EXPECT_LE(*record.lag, GetParam().lag);
    if (record.phase != Phase::kPredict) {
      EXPECT_EQ(*record.lag, 0);
    }
    late += *record.lag > 0;
    errors += record.prediction_error.has_value();
    EXPECT_TRUE(std::isfinite(record.loss));
  }
  EXPECT_GT(late, 10);
  if (GetParam().device_side == "selective") {
    EXPECT_EQ(errors, 0);
  } else {
    EXPECT_GT(errors, 5);
  }
  EXPECT_EQ(records.back().phase, Phase::kCorrect);
  EXPECT_LT(records.back().loss, records.front().loss);
  const std::string summary = text_of_file(run("run") / "summary.json");
  EXPECT_NE(summary.find(concat("\"speculation\":{\"steps\":", late, ",")), std::string::npos)
      << summary;
}

TEST_P(Speculation, RepeatsAndResumesBitwise) {
  HybridTrainerConfig whole = config();
  train_tiny(whole, data(), run("again"));
  whole.checkpoint.every_steps = 1;
  whole.checkpoint.keep = 100;
  train_tiny(whole, data(), run("whole"));
  const std::string wanted = newest_checkpoint_digest(run("whole"));
  EXPECT_EQ(newest_checkpoint_digest(run("again")), wanted);
  for (int stop = 12; stop < 40; stop += 3) {  // from the first Predict on
    const std::filesystem::path cut = run(concat("cut", stop));
    copy_up_to(run("whole"), cut, stop, 40);
    train_tiny(whole, data(), cut, true);
    ASSERT_EQ(losses_of(cut), losses_of(run("whole"))) << stop;
    ASSERT_EQ(newest_checkpoint_digest(cut), wanted) << stop;
  }
}

TEST_P(Speculation, SimulatedPeaksMatchMeasuredPeaks) {
  train_tiny(config(), data(), run("run"));
  HybridTrainerConfig resolved = config();
  resolved.model.vocabulary = 17;
  const MemoryNeed need = simulate_memory(resolved, {});
  std::array<std::size_t, kPhases> measured{};
  for (const StepRecord& record : records_of(run("run"))) {
    std::size_t& peak = measured[static_cast<std::size_t>(record.phase)];
    peak = std::max(peak, record.device_memory.peak_total);
  }
  for (const Phase phase : kAllPhases) {
    const auto planned =
        static_cast<double>(need.phases[static_cast<std::size_t>(phase)].peak_bytes);
    const auto real = static_cast<double>(measured[static_cast<std::size_t>(phase)]);
    EXPECT_NEAR(planned / real, 1, 0.01) << name_of(phase);
  }
}

TEST(SpeculationConfig, EachFieldTakesEffect) {
  const TemporaryFolder folder;
  prepare_tiny_data(folder.path() / "data");
  int runs = 0;
  const auto trained = [&](const std::function<void(HybridTrainerConfig&)>& change) {
    HybridTrainerConfig config = tiny_config();
    config.phases.method = "asynchronous_optimizer";
    config.training.steps = 24;
    change(config);
    const auto run = folder.path() / std::to_string(runs++);
    train_tiny(config, folder.path() / "data", run);
    return run;
  };
  const auto plain = trained([](auto&) {});
  EXPECT_NE(losses_of(trained([](auto& c) { c.phases.asynchronous_optimizer.delay = 2; })),
            losses_of(plain));
  EXPECT_NE(
      losses_of(trained([](auto& c) { c.phases.asynchronous_optimizer.device_side = "sketch"; })),
      losses_of(plain));
  const auto side = [&](const char* name) {
    return losses_of(trained([&](auto& c) { c.phases.asynchronous_optimizer.device_side = name; }));
  };
  EXPECT_NE(side("selective"), losses_of(plain));
  EXPECT_NE(side("selective"), side("none"));
  const auto in_file =
      trained([](auto& c) { c.phases.asynchronous_optimizer.exact_state = "file"; });
  EXPECT_EQ(losses_of(in_file), losses_of(plain));
  EXPECT_LT(records_of(in_file).front().host_memory.live_total,
            records_of(plain).front().host_memory.live_total);
  const int cores = processor_info().cores;
  EXPECT_EQ(
      losses_of(trained([&](auto& c) { c.phases.asynchronous_optimizer.worker_threads = cores; })),
      losses_of(plain));
  EXPECT_THROW(
      trained([&](auto& c) { c.phases.asynchronous_optimizer.worker_threads = cores + 1; }),
      ConfigError);
}

TEST(SpeculationConfig, ReportsIncompatibleSettings) {
  HybridTrainerConfig config = tiny_config();
  config.phases.method = "asynchronous_optimizer";
  config.memory.optimizer_state = "host";
  config.memory.weights = "file";
  config.memory.gradients = "consume";
  config.optimizer.paged = true;
  config.optimizer.state_bits = 8;
  config.optimizer.name = "adafactor";
  config.memory.gradient_bits = 16;
  config.phases.asynchronous_optimizer.delay = 2;
  config.phases.asynchronous_optimizer.device_side = "sketch";
  const auto message = message_of<ConfigError>([&] { config.validate(); });
  for (const char* word :
       {"memory.optimizer_state", "memory.weights", "memory.gradients", "optimizer.paged",
        "optimizer.state_bits", "phases.asynchronous_optimizer.exact_state",
        "optimizer.name: got adafactor", "adamw, lion or muon",
        "phases.asynchronous_optimizer.delay: got 2",
        "phases.asynchronous_optimizer.device_side: got sketch"})
    EXPECT_TRUE(contains(message, word));
  config = tiny_config();
  config.memory.gradient_bits = 16;
  EXPECT_TRUE(
      contains(message_of<ConfigError>([&] { config.validate(); }), "asynchronous optimizer"));
  config.phases.method = "asynchronous_optimizer";
  config.optimizer.name = "lion";
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { config.validate(); }), "adamw or muon"));
  config.memory.gradient_bits = 24;
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { config.validate(); }), "want 32 or 16"));
}

}  // namespace
}  // namespace hybrid_trainer
