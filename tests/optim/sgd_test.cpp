#include "src/optim/momentum_optimizers.h"

#include <gtest/gtest.h>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::expect_follows;
using testing::numbers;
using testing::ParameterSet;

void expect_agreement(double momentum) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.momentum = momentum;
  Sgd optimizer(config, parameters.pointers(), stream, stream);
  expect_follows(optimizer, parameters, stream, [&](double& w, double& m, double g, double decay) {
    m = momentum * m + g;
    w -= 0.02 * (m + decay * w);
  });
}

TEST(Sgd, MatchesHeavyBallMomentumInDouble) { expect_agreement(0.9); }
TEST(Sgd, MatchesPlainDescentInDouble) { expect_agreement(0); }

TEST(Sgd, WithoutMomentumKeepsNoState) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.momentum = 0;
  Sgd optimizer(config, parameters.pointers(), stream, stream);
  optimizer.visit_state([](const StateLabel& label, Tensor&) { ADD_FAILURE() << label.name; });
  parameters.set_gradients(1);
  optimizer.step(0.1f, 1, stream);
  const auto directions = parameters.copies();
  optimizer.write_momentum_directions(directions, 0.1f, stream);
  for (const Tensor& direction : directions) {
    for (const float x : numbers(direction)) EXPECT_EQ(x, 0);
  }
}

}  // namespace
}  // namespace hybrid_trainer
