#include <gtest/gtest.h>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

struct Checkpoint {
  QuadraticBowl::Saved bowl;
  State machine;
};

/// Copies a state as if read from a file, without sharing tensors.
State copy_of(const State& state, const Stream& stream) {
  State copied = state;
  for (auto& [name, tensor] : copied.tensors) {
    const Tensor fresh = Tensor::empty_like(tensor, MemoryKind::kData, stream);
    copy(fresh, tensor, stream);
    tensor = fresh;
  }
  return copied;
}

void expect_equal(const PhaseOutcome& a, const PhaseOutcome& b) {
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradient_norm, b.gradient_norm);
  EXPECT_EQ(a.predicted_loss, b.predicted_loss);
  EXPECT_EQ(a.confidence, b.confidence);
  EXPECT_EQ(a.kept_fraction, b.kept_fraction);
  EXPECT_EQ(a.rate_factor, b.rate_factor);
  EXPECT_EQ(a.probe_position, b.probe_position);
  EXPECT_EQ(a.cost, b.cost);
  EXPECT_EQ(a.planning_cost, b.planning_cost);
  EXPECT_EQ(a.event, b.event);
}

class Resume : public ::testing::TestWithParam<std::string> {};

TEST_P(Resume, FromAnyStepMatchesUninterruptedRun) {
  constexpr int kSteps = 60;
  PhaseMachine::Setup setup = eager_setup();
  if (GetParam() == "arms") {
    setup.phases.skip_backward.variants = {
        {"merged", 3}, {"linear", 2}, {"two_timescale", 4}, {"zero", 1}};
  } else if (GetParam() == "model_based") {
    setup.phases.skip_backward.horizon = "model_based";
    setup.phases.skip_backward.model_based_cost = 1000;  // learns only occasionally
  } else {
    setup.phases.skip_backward.predictor = GetParam();
  }
  setup.phases.skip_backward.correction_interval = 2;
  setup.phases.correct_steps = 2;
  setup.phases.skip_backward.history_interval = 2;
  setup.restore_lookahead = 2;
  setup.phases.warmup_steps = 13;
  setup.learning_rate_finder = {.mode = "warmup", .interval = 3};
  setup.ramp_steps = 2;
  setup.divergence.window = 8;
  const double noise = 0.3;
  const Stream disk(MemoryPool::create("disk"));

  BowlRun whole({}, setup, noise);
  std::vector<Checkpoint> checkpoints;
  std::vector<PhaseOutcome> outcomes;
  for (int i = 0; i < kSteps; ++i) {
    State state;
    whole.machine.save(state);
    checkpoints.push_back({whole.bowl.saved(), copy_of(state, disk)});
    outcomes.push_back(whole.step());
  }
  ASSERT_GE(whole.machine.statistics().predictions.made, 2);
  ASSERT_GT(whole.bowl.rate_factor, 1);

  for (int stop = 0; stop < kSteps; ++stop) {
    SCOPED_TRACE("stopped before step " + std::to_string(stop));
    BowlRun resumed({}, setup, noise);
    resumed.bowl.restore(checkpoints[static_cast<std::size_t>(stop)].bowl);
    resumed.machine.load(checkpoints[static_cast<std::size_t>(stop)].machine);
    resumed.steps = stop;
    for (int i = stop; i < kSteps; ++i) {
      expect_equal(resumed.step(), outcomes[static_cast<std::size_t>(i)]);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(resumed.bowl.flat(), whole.bowl.flat());
    EXPECT_EQ(resumed.bowl.moments(), whole.bowl.moments());
    EXPECT_EQ(resumed.machine.statistics().predicted_gain,
              whole.machine.statistics().predicted_gain);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPredictor, Resume, ::testing::ValuesIn(predictor_names()),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Bandit, Resume, ::testing::Values("arms"));
INSTANTIATE_TEST_SUITE_P(ModelBased, Resume, ::testing::Values("model_based"));

TEST(Resume, EntersSavedPhaseAndRestoresInNextStep) {
  PhaseMachine::Setup setup = eager_setup();
  setup.restore_lookahead = 3;
  BowlRun run({}, setup, 0);
  run.run_until(Phase::kPredict);
  run.run(2);
  State state;
  run.machine.save(state);
  BowlRun resumed({}, setup, 0);
  resumed.bowl.restore(run.bowl.saved());
  resumed.machine.load(state);
  EXPECT_EQ(resumed.bowl.log, (std::vector<std::string>{"predict"}));
  EXPECT_EQ(resumed.machine.phase(), Phase::kPredict);
  resumed.step();
  EXPECT_EQ(resumed.bowl.log, (std::vector<std::string>{"predict", "begin_restore"}));
}

TEST(Resume, MissingFieldThrowsDataError) {
  BowlRun run({}, eager_setup(), 0);
  State state;
  run.machine.save(state);
  state.integers.erase("phases.gate.jumps");
  EXPECT_THROW(run.machine.load(state), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
