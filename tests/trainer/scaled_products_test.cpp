#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

/// A config whose initial loss scale is too large for fp16.
HybridTrainerConfig overflowing_config() {
  HybridTrainerConfig config = rank_config("adamw", 4);
  config.model.initializer_range = 0.5;
  config.mixed_precision = MixedPrecisionConfig::all("fp16");
  config.mixed_precision.loss_scale = 1 << 24;
  config.mixed_precision.loss_scale_growth_steps = 5;
  return config;
}

HybridTrainerConfig eight_bit_config() {
  HybridTrainerConfig config = rank_config("adamw", 4);
  config.mixed_precision = MixedPrecisionConfig::all("fp8");
  return config;
}

/// A trainer with its model and the records of its steps.
struct Training {
  explicit Training(const HybridTrainerConfig& of)
      : config(of),
        stream(MemoryPool::create("device")),
        model(make_model(config.model, 1, stream)),
        trainer(*model, config, stream, MemoryPool::create("host")) {}
  void step_to(std::int64_t last) {
    while (trainer.steps_done() < last)
      records.push_back(trainer.step(step_batch(config, trainer.steps_done(), stream)));
  }
  std::vector<float> weights() { return master_values(*model, stream); }

  HybridTrainerConfig config;
  Stream stream;
  std::unique_ptr<LanguageModel> model;
  HybridTrainer trainer;
  std::vector<StepRecord> records;
};

bool all_finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void fill_weights(LossModel& model, float value, const Stream& stream) {
  for (Parameter* const parameter : trainable_parameters(model)) {
    const Weight master = parameter->acquire_master(stream, Use::kWrite);
    std::fill_n(master.tensor().data<float>(), parameter->elements(), value);
  }
}

TEST(ScaledProducts, OverflowSkipsStepAndHalvesLossScale) {
  Training run(overflowing_config());
  const std::vector<float> first = run.weights();
  run.step_to(1);
  const StepRecord& skipped = run.records.front();
  EXPECT_TRUE(first == run.weights());
  EXPECT_EQ(skipped.loss_scale, 1 << 23);
  EXPECT_EQ(skipped.overflows, 1);
  EXPECT_TRUE(std::isfinite(skipped.loss));
  EXPECT_FALSE(skipped.gradient_norm.has_value());
  EXPECT_FALSE(skipped.warns);
  EXPECT_EQ(skipped.recovery, Recovery::kContinue);
  EXPECT_TRUE(skipped.event.starts_with("the gradient overflowed in fp16")) << skipped.event;
  run.step_to(kSteps);
  std::int64_t overflows = 0;
  double scale = 1 << 24;
  for (const StepRecord& record : run.records) {
    EXPECT_TRUE(std::isfinite(record.loss)) << record.step;
    const bool overflowed = record.overflows > overflows;
    EXPECT_TRUE(!overflowed || record.loss_scale == scale / 2) << record.step;
    overflows = record.overflows;
    scale = *record.loss_scale;
  }
  EXPECT_GT(overflows, 1);
  EXPECT_LT(overflows, kSteps / 2);
  EXPECT_EQ(run.trainer.machine().statistics().skipped_updates, 0);
  EXPECT_TRUE(all_finite(run.weights()));
  EXPECT_FALSE(first == run.weights());
}

/// Scaling by a power of two changes no bit, unless a value overflows or underflows.
TEST(ScaledProducts, ReportsUnscaledGradientNorm) {
  HybridTrainerConfig config = rank_config("adamw", 2);
  config.mixed_precision = MixedPrecisionConfig::all("fp16");
  config.mixed_precision.loss_scale = 4096;
  Training scaled(config);
  config.mixed_precision = MixedPrecisionConfig::all("fp32");
  Training plain(config);
  scaled.step_to(4);
  plain.step_to(4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(*scaled.records[i].gradient_norm, *plain.records[i].gradient_norm, 1e-3) << i;
    EXPECT_NEAR(scaled.records[i].loss, plain.records[i].loss, 1e-3) << i;
    EXPECT_FALSE(plain.records[i].loss_scale.has_value());
  }
  EXPECT_NE(scaled.records[3].loss, plain.records[3].loss);
}

TEST(ScaledProducts, NonFiniteLossEndsRun) {
  HybridTrainerConfig config = overflowing_config();
  config.divergence.max_skipped_updates = 0;
  Training run(config);
  fill_weights(*run.model, 300, run.stream);  // products overflow fp16 in forward
  EXPECT_THROW(run.step_to(1), Diverged);
}

/// A model whose gradient contains a NaN, for any loss scale.
class BrokenModel final : public LossModel {
 public:
  explicit BrokenModel(LossModel& model) : model_(model) {}
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    return model_.forward(batch, gradient_scale, tape, stream);
  }
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override {
    model_.backward(batch, tape, stream);
    const Parameter& first = *trainable_parameters(model_).front();
    first.gradient().data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  }
  void visit_parameters(const ParameterVisitor& visit) override { model_.visit_parameters(visit); }

 private:
  LossModel& model_;
};

TEST(ScaledProducts, OverflowAtSmallestScaleEndsRun) {
  HybridTrainerConfig config = rank_config("adamw", 1);
  config.mixed_precision = MixedPrecisionConfig::all("fp16");
  config.mixed_precision.loss_scale = 4;
  config.divergence.max_skipped_updates = 1;
  const Training made(config);
  BrokenModel broken(*made.model);
  HybridTrainer trainer(broken, config, made.stream, MemoryPool::create("host"));
  const auto step = [&] {
    return trainer.step(step_batch(config, trainer.steps_done(), made.stream));
  };
  for (const int scale : {2, 1}) {
    const StepRecord overflowed = step();
    EXPECT_EQ(overflowed.loss_scale, scale);
    EXPECT_FALSE(overflowed.warns);
  }
  const StepRecord skipped = step();
  EXPECT_EQ(skipped.recovery, Recovery::kSkipBatch);
  EXPECT_EQ(skipped.overflows, 2);
  EXPECT_EQ(trainer.machine().statistics().skipped_updates, 1);
  EXPECT_THROW(step(), Diverged);
}

/// If Correct's gradient overflows at the initial scale, the prediction is not to blame.
TEST(ScaledProducts, OverflowInCorrectIsComputedAgain) {
  HybridTrainerConfig config = overflowing_config();
  config.mixed_precision.warmup = config.mixed_precision.full = config.mixed_precision.predict =
      "fp32";
  Training run(config);
  run.step_to(kSteps);
  const auto judged = std::ranges::find_if(
      run.records, [](const StepRecord& record) { return record.decision != Decision::kNone; });
  ASSERT_NE(judged, run.records.end());
  EXPECT_EQ(judged[-1].overflows, 0);
  EXPECT_GT(judged->overflows, 0);
  EXPECT_TRUE(judged->event.starts_with(
      "the gradient overflowed in fp16 and was computed again with the loss scale "))
      << judged->event;
  EXPECT_FALSE(judged->warns) << judged->event;
  EXPECT_TRUE(judged->gradient_norm.has_value());
}

/// Options that only move numbers or recompute them change no bit.
TEST(ScaledProducts, MemoryOptionsDoNotChangeResults) {
  const std::vector<std::pair<const char*, void (*)(HybridTrainerConfig&)>> options{
      {"recomputation", [](auto& c) { c.memory.recompute = 1; }},
      {"consumed gradients", [](auto& c) { c.memory.gradients = "consume"; }},
      {"activations on the host", [](auto& c) { c.memory.activations = "host"; }},
      {"weights on the host", [](auto& c) { c.memory.weights = "host"; }},
      {"state on the host", [](auto& c) { c.memory.optimizer_state = "host"; }},
  };
  for (HybridTrainerConfig config : {overflowing_config(), eight_bit_config()}) {
    config.phases.max_predict_steps = 0;
    Training plain(config);
    plain.step_to(kSteps);
    for (const auto& [name, set] : options) {
      HybridTrainerConfig with = config;
      set(with);
      Training run(with);
      run.step_to(kSteps);
      EXPECT_TRUE(run.weights() == plain.weights()) << config.mixed_precision.full << ", " << name;
      EXPECT_EQ(run.records.back().overflows, plain.records.back().overflows) << name;
    }
  }
}

/// The first fp8 scale depends on the operands of a micro-batch, because there is no history yet.
TEST(ScaledProducts, MicroBatchesMatchWholeBatch) {
  for (const auto& [precision, tolerance] : {std::pair("fp16", 1e-3), std::pair("fp8", 2e-2)}) {
    HybridTrainerConfig config = rank_config("adamw", 4);
    config.model.dropout = 0;
    config.phases.max_predict_steps = 0;
    config.mixed_precision = MixedPrecisionConfig::all(precision);
    Training parts(config);
    config.gradient_accumulation.micro_batches = 1;
    config.data.batch_size *= 4;
    Training whole(config);
    parts.step_to(6);
    whole.step_to(6);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(parts.records[i].loss, whole.records[i].loss, tolerance) << precision << i;
      EXPECT_NEAR(*parts.records[i].gradient_norm, *whole.records[i].gradient_norm,
                  tolerance * *whole.records[i].gradient_norm)
          << precision << i;
    }
  }
}

TEST(ScaledProducts, ExpertProductsAreRounded) {
  for (const char* const family : {"mixtral", "gpt_oss"}) {
    for (HybridTrainerConfig config : {overflowing_config(), eight_bit_config()}) {
      config.model.family = family;
      config.model.initializer_range = 0.1;
      config.model.experts = {.count = 4, .chosen = 2, .balance_loss = 0.05};
      config.mixed_precision.loss_scale = 1 << 20;
      Training run(config);
      run.step_to(kSteps);
      EXPECT_TRUE(all_finite(run.weights())) << family;
      EXPECT_LT(run.records.back().loss, run.records.front().loss) << family;
      config.mixed_precision = MixedPrecisionConfig::all("fp32");
      Training plain(config);
      plain.step_to(1);
      EXPECT_NE(plain.records.front().loss, run.records.front().loss) << family;
      EXPECT_NEAR(plain.records.front().loss, run.records.front().loss, 0.05) << family;
    }
  }
}

TEST(ScaledProducts, ResumeMatchesUninterruptedRun) {
  for (const HybridTrainerConfig& config : {overflowing_config(), eight_bit_config()}) {
    const std::string& precision = config.mixed_precision.full;
    Training whole(config);
    whole.step_to(kSteps);
    for (const std::int64_t stop : {2, 9, 19}) {
      const TemporaryFolder folder;
      Training before(config), after(config);
      before.step_to(stop);
      before.trainer.save(folder.path());
      ASSERT_TRUE(after.trainer.resume(folder.path()));
      after.step_to(kSteps);
      EXPECT_TRUE(after.weights() == whole.weights()) << precision << " from step " << stop;
      for (const StepRecord& record : after.records) {
        const StepRecord& same = whole.records[static_cast<std::size_t>(record.step - 1)];
        EXPECT_EQ(record.loss, same.loss) << precision << " step " << record.step;
        EXPECT_EQ(record.loss_scale, same.loss_scale) << record.step;
        EXPECT_EQ(record.overflows, same.overflows) << record.step;
      }
    }
  }
}

TEST(ScaledProducts, RanksMatchSingleRank) {
  for (const HybridTrainerConfig& config : {overflowing_config(), eight_bit_config()}) {
    const RankOutcome alone = train_alone(config);
    for (const std::int64_t zero : {0, 1}) {
      HybridTrainerConfig shared = config;
      shared.distributed.zero = zero;
      for (const RankOutcome& rank : train_ranks(shared, 2))
        expect_same(rank, alone, concat(config.mixed_precision.full, ", zero ", zero));
    }
  }
}

/// The predicted updates of an asynchronous optimizer do not wait for a gradient that overflowed.
TEST(ScaledProducts, AsynchronousOptimizerSkipsOverflows) {
  HybridTrainerConfig config = overflowing_config();
  config.phases.method = "asynchronous_optimizer";
  config.phases.warmup_steps = 1;
  config.phases.full_steps = 1;
  config.phases.max_predict_steps = 25;
  Training run(config);
  run.step_to(kSteps);
  std::int64_t in_predict = 0;
  for (std::size_t i = 1; i < run.records.size(); ++i) {
    const bool overflowed = run.records[i].overflows > run.records[i - 1].overflows;
    in_predict += overflowed && run.records[i].phase == Phase::kPredict;
  }
  EXPECT_GT(in_predict, 0);
  EXPECT_TRUE(all_finite(run.weights()));
  EXPECT_LT(run.records.back().loss, run.records.front().loss);
}

TEST(ScaledProducts, LossMatchesFp32) {
  HybridTrainerConfig config = rank_config("adamw", 1);
  const auto last_loss = [&](const std::string& precision) {
    config.mixed_precision = MixedPrecisionConfig::all(precision);
    Training run(config);
    run.step_to(kSteps);
    return run.records.back().loss;
  };
  const double exact = last_loss("fp32");
  EXPECT_NEAR(last_loss("fp16"), exact, 0.002 * exact);
  const double eight_bits = last_loss("fp8");
  EXPECT_NEAR(eight_bits, exact, 0.02 * exact);
  EXPECT_NE(eight_bits, exact);
}

TEST(ScaledProducts, StageOverridesPrecision) {
  HybridTrainerConfig config = eight_bit_config();
  config.phases.max_predict_steps = 0;
  config.mixed_precision = MixedPrecisionConfig::all("fp32");
  config.stages = {{.until = 0.5, .precision = "fp16"}};
  Training run(config);
  run.step_to(kSteps);
  config.stages.front().precision = "fp32";
  Training plain(config);
  plain.step_to(1);
  EXPECT_NE(run.records.front().loss, plain.records.front().loss);
  EXPECT_TRUE(run.records.back().loss_scale.has_value());
}

TEST(ScaledProducts, ReportsOverflows) {
  HybridTrainerConfig config = overflowing_config();
  config.training.steps = 12;
  config.phases.max_predict_steps = 0;
  const TemporaryFolder folder;
  prepare_tiny_data(folder / "data");
  std::string console;
  const TrainingRunResult result =
      train_tiny(config, folder / "data", folder / "run", false, &console);
  EXPECT_NE(console.find("the gradient overflowed in fp16: skipped the update"), std::string::npos);
  const StepRecord last = records_of(folder / "run").back();
  EXPECT_GT(last.overflows, 0);
  EXPECT_TRUE(last.loss_scale.has_value());
  const auto holds = [&](const char* file, const std::string& text) {
    return read_text(folder / "run" / file).find(text) != std::string::npos;
  };
  EXPECT_TRUE(holds("summary.json", concat("\"overflows\":", last.overflows)));
  EXPECT_TRUE(holds("report.html", "Gradients that overflowed in fp16"));
  config.mixed_precision = MixedPrecisionConfig::all("fp8");
  train_tiny(config, folder / "data", folder / "other");
  EXPECT_FALSE(records_of(folder / "other").back().loss_scale.has_value());
}

std::vector<std::string> problems_of(const HybridTrainerConfig& config) {
  return config.problems(model_families());
}

TEST(ScaledProducts, AsynchronousRanksRejectFp16AndFp8) {
  for (const char* const method : {"asynchronous_gradients", "local_sgd"}) {
    for (const char* const precision : {"fp16", "fp8"}) {
      HybridTrainerConfig config = rank_config("adamw", 4);
      config.phases.method = method;
      config.phases.local_sgd.steps = 4;
      config.mixed_precision.full = precision;
      ASSERT_EQ(problems_of(config).size(), 1u) << method;
      EXPECT_TRUE(problems_of(config)[0].starts_with(
          "mixed_precision.predict: got auto, but Predict uses the precision of Full"))
          << problems_of(config)[0];
      config.mixed_precision.predict = precision;
      ASSERT_EQ(problems_of(config).size(), 1u) << method;
      EXPECT_TRUE(problems_of(config)[0].starts_with(concat(
          "mixed_precision.predict: got ", precision, ", but ranks do not share the scales")))
          << problems_of(config)[0];
      config.mixed_precision.predict = "bf16";
      EXPECT_EQ(problems_of(config), std::vector<std::string>{});
    }
  }
}

TEST(ScaledProducts, RejectsLossScaleNotPowerOfTwo) {
  HybridTrainerConfig config = overflowing_config();
  config.mixed_precision.loss_scale = 1000;
  EXPECT_EQ(problems_of(config),
            std::vector<std::string>{"mixed_precision.loss_scale: got 1000, want a power of two, "
                                     "because other scales round gradients"});
}

TEST(ScaledProducts, Fp16DisablesUpdatesWithinBackward) {
  HybridTrainerConfig config = overflowing_config();
  config.memory.gradients = "consume";
  config.optimizer.clip_norm = 0;
  config.phases.max_predict_steps = 0;
  config.divergence.max_skipped_updates = 0;
  config.divergence.critical_after = 0;
  config.divergence.on_critical = Recovery::kAbort;
  config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
  const bool plain = config.updates_at_once();
  config.mixed_precision.full = "fp16";
  EXPECT_TRUE(plain);
  EXPECT_FALSE(config.updates_at_once());
}

}  // namespace
}  // namespace hybrid_trainer
