#include "src/trainer/model_trainable.h"
#include "hybrid_trainer/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/parameters.h"
#include "tests/trainer/trainable_subject.h"

namespace hybrid_trainer {
namespace {

std::vector<Tensor> weights_of(ModelTrainable& trainable) {
  const std::vector<Tensor> weights =
      trainable.weights().empty_like_weights(MemoryKind::kPredictor);
  trainable.weights().copy_weights(weights);
  return weights;
}

double largest_difference(Subject& left, Subject& right) {
  double largest = 0;
  const auto x = weights_of(left.trainable), y = weights_of(right.trainable);
  for (std::size_t k = 0; k < x.size(); ++k) {
    for (std::int64_t i = 0; i < x[k].elements(); ++i) {
      const double gap = std::abs(x[k].data<float>()[i] - y[k].data<float>()[i]);
      largest = std::max(largest, gap);
    }
  }
  return largest;
}

class Accumulation : public ::testing::TestWithParam<std::string> {};

TEST_P(Accumulation, MicroBatchesMatchLargeBatchWithinRounding) {
  for (const double dropout : {0.0, 0.2}) {
    HybridTrainerConfig whole = config_of(GetParam(), 8, 1), parts = config_of(GetParam(), 2, 4);
    whole.model.dropout = parts.model.dropout = dropout;
    Subject large(whole), small(parts);
    for (Subject* setup : {&large, &small}) {
      setup->trainable.enter_phase(Phase::kFull);
      for (std::uint64_t step = 0; step < 3; ++step) {
        setup->trainable.wait_for_gradient(setup->batch(step));
        setup->trainable.apply_gradient();
      }
    }
    EXPECT_LT(largest_difference(large, small), 3e-4)
        << "a tenth of one step at most; dropout " << dropout;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Accumulation, ::testing::Values("sgd", "adamw"));

TEST(ModelTrainable, AccumulationMatchesManualPasses) {
  Subject setup(config_of("sgd", 4, 2)), by_hand(config_of("sgd", 4, 2));
  setup.trainable.enter_phase(Phase::kFull);
  testing::StepGradients step(
      [&](const ParameterVisitor& visit) { by_hand.model.visit_parameters(visit); },
      by_hand.stream);
  const Batch batch = setup.batch(0);
  setup.trainable.wait_for_gradient(batch);
  const auto x = trainable_parameters(setup.model), y = trainable_parameters(by_hand.model);
  std::vector<Tensor> sums;
  for (const Parameter* weight : y) {
    sums.push_back(
        Tensor::zeros(weight->shape(), DType::kF32, MemoryKind::kGradients, by_hand.stream));
  }
  for (std::int64_t part = 0; part < 2; ++part) {
    step.begin();
    PlainTape tape(Pass{});
    const Batch half = batch.examples(4 * part, 4 * part + 4);
    by_hand.model.forward(half, 0.5f, tape, by_hand.stream);
    by_hand.model.backward(half, tape, by_hand.stream);
    for (std::size_t k = 0; k < y.size(); ++k)
      kernels::add(sums[k], sums[k], y[k]->gradient(), by_hand.stream);
  }
  for (std::size_t k = 0; k < x.size(); ++k)
    EXPECT_TRUE(testing::same_bits(x[k]->gradient(), sums[k])) << x[k]->name();
}

/// Peak of live bytes; cached memory is excluded because it is released when needed.
std::size_t needed_by_a_step(Subject& setup) {
  setup.trainable.enter_phase(Phase::kFull);
  setup.trainable.wait_for_gradient(setup.batch(0));
  return setup.stream.pool()->use().peak_total;
}

TEST(ModelTrainable, HalvesMicroBatchesWhenMemoryIsShort) {
  Subject whole(config_of("sgd", 32, 1)), halves(config_of("sgd", 16, 2));
  const std::size_t much = needed_by_a_step(whole), less = needed_by_a_step(halves);
  ASSERT_LT(less, much);
  const std::size_t budget = (much + less) / 2;
  Subject tight(config_of("sgd", 32, 1), budget);
  needed_by_a_step(tight);
  EXPECT_LE(tight.stream.pool()->use().max_taken, budget);
  const auto x = trainable_parameters(tight.model), y = trainable_parameters(halves.model);
  for (std::size_t k = 0; k < x.size(); ++k)
    EXPECT_TRUE(testing::same_bits(x[k]->gradient(), y[k]->gradient())) << x[k]->name();
  State state;
  tight.trainable.save(state);
  EXPECT_EQ(state.integer("trainer.micro_batches.full"), 2);
  Subject resumed(config_of("sgd", 32, 1));
  resumed.trainable.load(state);
  resumed.trainable.save(state);
  EXPECT_EQ(state.integer("trainer.micro_batches.full"), 2)
      << "otherwise the bits would depend on the memory";
}

TEST(ModelTrainable, ThrowsWhenOneExampleExceedsMemory) {
  Subject one(config_of("sgd", 1, 1));
  const std::size_t budget = needed_by_a_step(one) - 4096;
  Subject tight(config_of("sgd", 4, 1), budget);
  EXPECT_THROW(needed_by_a_step(tight), OutOfMemory);
}

std::size_t live(const Subject& setup, MemoryKind kind) {
  return setup.stream.pool()->use().live[static_cast<std::size_t>(kind)];
}

/// Live bytes of masters and copies.
std::size_t live_weights(const Subject& setup) {
  return live(setup, MemoryKind::kParameters) + live(setup, MemoryKind::kMasterWeights);
}

std::size_t live_on_host(const Subject& setup, MemoryKind kind) {
  return setup.host->use().live[static_cast<std::size_t>(kind)];
}

TEST(ModelTrainable, PredictOffloadsStateAndFreesGradients) {
  Subject setup(config_of("adamw", 4, 1)), stayed(config_of("adamw", 4, 1));
  for (Subject* each : {&setup, &stayed}) {
    each->trainable.enter_phase(Phase::kFull);
    each->trainable.wait_for_gradient(each->batch(0));
    each->trainable.apply_gradient();
  }
  const std::size_t state = live(setup, MemoryKind::kOptimizerState);
  EXPECT_GT(state, 0u);
  setup.trainable.enter_phase(Phase::kPredict);
  EXPECT_EQ(live(setup, MemoryKind::kGradients), 0u);
  EXPECT_EQ(live(setup, MemoryKind::kOptimizerState), 0u);
  EXPECT_EQ(live(setup, MemoryKind::kActivations), 0u);
  EXPECT_EQ(setup.stream.pool()->use().cached, 0u);
  EXPECT_EQ(live_on_host(setup, MemoryKind::kOptimizerState), state);
  setup.trainable.begin_restore();
  setup.trainable.enter_phase(Phase::kCorrect);
  EXPECT_EQ(live(setup, MemoryKind::kOptimizerState), 0u) << "it returns during Correct's passes";
  for (Subject* each : {&setup, &stayed}) {
    each->trainable.wait_for_gradient(each->batch(1));
    each->trainable.apply_gradient();
  }
  EXPECT_EQ(largest_difference(setup, stayed), 0.0);
  EXPECT_EQ(live(setup, MemoryKind::kOptimizerState), state);
  EXPECT_EQ(live_on_host(setup, MemoryKind::kOptimizerState), 0u);
}

TEST(ModelTrainable, SaveDoesNotInterruptStateRestore) {
  for (const bool begun : {false, true}) {
    Subject setup(config_of("adamw", 4, 1));
    setup.trainable.enter_phase(Phase::kFull);
    const std::size_t all = live(setup, MemoryKind::kOptimizerState);
    setup.trainable.enter_phase(Phase::kPredict);
    if (begun) {
      setup.trainable.enter_phase(Phase::kCorrect);
      setup.loss(0);
    }
    State state;
    setup.trainable.save(state);
    state = {};
    setup.trainable.release_after_save();
    EXPECT_EQ(live(setup, MemoryKind::kOptimizerState), begun ? all : 0u);
  }
}

TEST(ModelTrainable, IgnoresFrozenWeights) {
  const HybridTrainerConfig config = config_of("adamw", 4, 2);
  const Stream stream(MemoryPool::create("device"));
  const auto model_owner = make_model(config.model, 3, stream);
  LanguageModel& model = *model_owner;
  std::map<std::string, Tensor> frozen;
  model.visit_parameters([&](Parameter& parameter) {
    if (!parameter.name().starts_with("w") && !parameter.name().starts_with("h.0")) return;
    parameter.freeze();
    frozen[parameter.name()] = testing::clone(testing::master_of(parameter), stream);
  });
  ModelTrainable trainable(model, config, stream, MemoryPool::create("host"), {});
  const Subject batches(config);
  trainable.enter_phase(Phase::kFull);
  for (std::uint64_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(trainable.wait_for_gradient(batches.batch(i)).finite());
    trainable.apply_gradient();
  }
  for (const Parameter* parameter : trainable_parameters(model))
    EXPECT_TRUE(parameter->gradient().defined()) << parameter->name();
  trainable.rollback().save_snapshot();
  State state;
  trainable.save(state);
  int left = 0;
  for (const auto& [name, tensor] : state.tensors) {
    left += name.starts_with("model.");
    for (const auto& [out, values] : frozen) EXPECT_EQ(name.find("." + out), std::string::npos);
  }
  EXPECT_EQ(left, 14) << "the second block and the last norm";
  model.visit_parameters([&](Parameter& parameter) {
    if (parameter.trainable()) return;
    EXPECT_TRUE(testing::same_bits(testing::master_of(parameter), frozen.at(parameter.name())));
  });
}

/// One normally distributed tensor per weight; zeros for vectors.
std::vector<Tensor> matrix_directions(ModelTrainable& trainable) {
  std::vector<Tensor> directions;
  for (const Tensor& weight : weights_of(trainable)) {
    const float size = weight.shape().rank() == 2 ? 0.1f : 0.0f;
    directions.push_back(
        testing::normal_tensor(weight.shape(), directions.size(), trainable.stream(), size));
  }
  return directions;
}

TEST(ModelTrainable, MovesAlongDirectionsAndRestoresBitwise) {
  Subject setup(config_of("adamw", 4, 1));
  ModelTrainable& trainable = setup.trainable;
  trainable.enter_phase(Phase::kPredict);
  const std::vector<Tensor> directions = matrix_directions(trainable);
  const std::vector<Tensor> start = weights_of(trainable);
  trainable.rollback().save_snapshot();
  const double loss = setup.loss(0);
  trainable.weights().move_along(directions, 0.5);
  EXPECT_NE(setup.loss(0), loss);
  const auto moved = weights_of(trainable);
  for (std::size_t k = 0; k < moved.size(); ++k) {
    const float* const from = start[k].data<float>();
    const float* const direction = directions[k].data<float>();
    for (std::int64_t i = 0; i < start[k].elements(); ++i)
      EXPECT_FLOAT_EQ(moved[k].data<float>()[i], from[i] + 0.5f * direction[i]);
  }
  trainable.rollback().restore_snapshot();
  EXPECT_EQ(setup.loss(0), loss);
  const auto back = weights_of(trainable);
  for (std::size_t k = 0; k < back.size(); ++k)
    EXPECT_TRUE(testing::same_bits(back[k], start[k])) << k;
}

/// A model with an extra weight that no batch uses.
class WithIdleWeight final : public LossModel {
 public:
  WithIdleWeight(LossModel& model, const Stream& stream)
      : model_(model), idle_("idle", {3, 5}, Role::kMatrix, stream) {}
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    return model_.forward(batch, gradient_scale, tape, stream);
  }
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override {
    model_.backward(batch, tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    visit(idle_);
    model_.visit_parameters(visit);
  }

 private:
  LossModel& model_;
  Parameter idle_;
};

TEST(ModelTrainable, SlopeSkipsWeightWithoutGradient) {
  const HybridTrainerConfig config = config_of("adamw", 4, 2);
  const Subject subject(config);
  WithIdleWeight model(subject.model, subject.stream);
  ModelTrainable trainable(model, config, subject.stream, subject.host, {});
  trainable.enter_phase(Phase::kFull);
  trainable.wait_for_gradient(subject.batch(0));
  const std::vector<Tensor> directions = matrix_directions(trainable);
  const std::vector<Parameter*> weights = trainable_parameters(model);
  EXPECT_FALSE(weights[0]->gradient().defined());
  double slope = 0;
  for (std::size_t k = 1; k < weights.size(); ++k)
    slope +=
        testing::dot(testing::values_of(weights[k]->gradient()), testing::values_of(directions[k]));
  EXPECT_NE(slope, 0);
  EXPECT_NEAR(trainable.weights().wait_for_slope(directions), slope, 1e-9 * std::abs(slope));
}

TEST(ModelTrainable, KeepsBf16CopiesOnlyInBf16Phases) {
  Subject setup(config_of("adamw", 4, 1));
  setup.trainable.enter_phase(Phase::kFull);
  const std::size_t masters = live_weights(setup);
  setup.trainable.enter_phase(Phase::kPredict);
  EXPECT_LT(live_weights(setup), 0.6 * masters) << "the masters are on the host";
  const double loss = setup.loss(0);
  setup.trainable.enter_phase(Phase::kCorrect);
  EXPECT_NEAR(setup.loss(0), loss, 0.02 * loss);
  EXPECT_EQ(live_weights(setup), masters);
}

TEST(ModelTrainable, KeepsMastersWithoutOffload) {
  HybridTrainerConfig config = config_of("adamw", 4, 1);
  config.predict_aware_memory.offload_strategy = "none";
  Subject setup(config);
  setup.trainable.enter_phase(Phase::kFull);
  const std::size_t masters = live_weights(setup);
  setup.trainable.enter_phase(Phase::kPredict);
  EXPECT_GT(live_weights(setup), masters);
  EXPECT_EQ(setup.host->use().live_total, 0u);
}

TEST(ModelTrainable, KeepsMastersWhenHostIsFull) {
  Subject setup(config_of("adamw", 4, 1), {}, 10000);
  setup.trainable.enter_phase(Phase::kFull);
  const std::size_t masters = live_weights(setup), state = live(setup, MemoryKind::kOptimizerState);
  setup.trainable.enter_phase(Phase::kPredict);
  EXPECT_EQ(live(setup, MemoryKind::kOptimizerState), state);
  const double loss = setup.loss(0);
  EXPECT_GT(live_weights(setup), 0.9 * masters);
  ASSERT_EQ(setup.told.size(), 2u);
  EXPECT_NE(setup.told.back().find("Predict keeps the master weights on the device"),
            std::string::npos)
      << setup.told.back();
  setup.trainable.enter_phase(Phase::kCorrect);
  EXPECT_NEAR(setup.loss(0), loss, 0.02 * loss);
}

}  // namespace
}  // namespace hybrid_trainer
