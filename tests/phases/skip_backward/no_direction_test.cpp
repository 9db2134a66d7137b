// A direction that is zero or not finite gives no prediction.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLongRun = 200;

/// The momentum direction, with one element replaced from a certain call on.
class Replacing final : public Predictor {
 public:
  Replacing(float value, std::int64_t from) : value_(value), from_(from) {}
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override {
    model.weights().write_momentum_directions(directions);
    if (calls_++ >= from_) directions[0].data<float>()[0] = value_;
  }
  void follow(Trainable&, const std::vector<Tensor>&, double) override {}
  void save(State&) const override {}
  void load(const State&, Trainable&) override {}

 private:
  float value_;
  std::int64_t from_, calls_ = 0;
};

std::vector<float> plain_weights(const QuadraticBowl::Options& options) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_predict_steps = 0;
  BowlRun plain(options, setup, 0.1);
  plain.run(kLongRun);
  return plain.bowl.flat();
}

struct Told {
  int times = 0;
  double cost = 0;
};

/// Expects that the run never predicts and equals plain training bit for bit.
Told train_without_a_direction(const QuadraticBowl::Options& options,
                               const PhaseMachine::Setup& setup) {
  BowlRun run(options, setup, 0.1);
  Told told;
  for (const PhaseOutcome& outcome : run.run(kLongRun)) {
    const bool tells = outcome.event.find("is zero or not finite") != std::string::npos;
    told.times += tells;
    told.cost += outcome.cost;
    EXPECT_EQ(outcome.warns, tells) << outcome.event;
    EXPECT_EQ(outcome.updates, 1);
    if (tells) {
      EXPECT_EQ(outcome.confidence.value_or(0), 0);
    }
  }
  EXPECT_EQ(run.machine.statistics().predictions.made, 0);
  EXPECT_EQ(run.bowl.flat(), plain_weights(options));
  return told;
}

TEST(UnusableDirection, OptimizerWithoutMomentumNeverPredicts) {
  QuadraticBowl::Options options;
  options.momentum = 0;
  for (const char* predictor : {"momentum", "random"}) {
    PhaseMachine::Setup setup = eager_setup();
    setup.phases.skip_backward.predictor = predictor;
    EXPECT_EQ(train_without_a_direction(options, setup).times, 1) << predictor;
  }
}

TEST(UnusableDirection, CostStaysWithinTrialShare) {
  QuadraticBowl::Options options;
  options.momentum = 0;
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 0.02;
  const Told told = train_without_a_direction(options, setup);
  EXPECT_EQ(told.times, 1);
  EXPECT_LE(told.cost, (1 + 2 * 0.02) * kLongRun);
}

TEST(UnusableDirection, IncludesNonFiniteValues) {
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    PhaseMachine::Setup setup = eager_setup();
    setup.make_predictor = [&](const SkipBackwardConfig&) {
      return std::make_unique<Replacing>(value, 0);
    };
    EXPECT_EQ(train_without_a_direction({}, setup).times, 1) << value;
  }
}

/// The fifth direction is that of the first prediction, since four slopes were measured before.
TEST(UnusableDirection, AtStartOfPredictMakesFullStep) {
  PhaseMachine::Setup setup = eager_setup();
  const float infinite = std::numeric_limits<float>::infinity();
  setup.make_predictor = [&](const SkipBackwardConfig&) {
    return std::make_unique<Replacing>(infinite, 4);
  };
  BowlRun run({}, setup, 0.1);
  run.run_until(Phase::kPredict);
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.phase, Phase::kFull);
  EXPECT_EQ(outcome.updates, 1);
  EXPECT_NE(outcome.event.find("is zero or not finite"), std::string::npos) << outcome.event;
  EXPECT_TRUE(run.bowl.snapshot().empty());
  EXPECT_EQ(train_without_a_direction({}, setup).times, 1);
}

TEST(UnusableDirection, IsNotReportedAgainAfterResume) {
  QuadraticBowl::Options options;
  options.momentum = 0;
  BowlRun run(options, eager_setup(), 0.1), resumed(options, eager_setup(), 0.1);
  run.run(30);
  State state;
  run.machine.save(state);
  resumed.bowl.restore(run.bowl.saved());
  resumed.machine.load(state);
  resumed.steps = run.steps;
  for (const PhaseOutcome& outcome : resumed.run(60)) EXPECT_FALSE(outcome.warns) << outcome.event;
}

/// A gradient of zero gives no information about the direction.
TEST(UnusableDirection, ZeroGradientIsNotReported) {
  BowlRun run({}, eager_setup(), 0);
  const auto at_the_minimum = [&] {
    Batch batch = run.bowl.batch(0, 0);
    const std::vector<float> weights = run.bowl.flat();
    std::copy(weights.begin(), weights.end(), batch.at("centres").data<float>());
    return batch;
  };
  run.run(7);
  for (int i = 0; i < 10; ++i) {
    const PhaseOutcome outcome = run.machine.step(at_the_minimum());
    EXPECT_NE(outcome.phase, Phase::kPredict);
    EXPECT_EQ(outcome.event.find("is zero"), std::string::npos) << outcome.event;
  }
}

}  // namespace
}  // namespace hybrid_trainer
