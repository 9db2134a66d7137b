#include "src/optim/sgd.h"

#include <gtest/gtest.h>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

void expect_agreement(double momentum) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.momentum = momentum;
  Sgd optimizer(config, parameters.pointers(), stream, stream);
  std::vector<std::vector<double>> w, m;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto start = numbers(master_of(parameters[i]));
    w.emplace_back(start.begin(), start.end());
    m.emplace_back(start.size(), 0.0);
  }
  for (std::uint64_t t = 1; t <= 10; ++t) {
    parameters.set_gradients(t);
    optimizer.step(0.02f, 0.5f, stream);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const auto g = numbers(parameters[i].gradient());
      const double decay = parameters[i].role() != Role::kVector ? 0.1 : 0;
      for (std::size_t j = 0; j < g.size(); ++j) {
        m[i][j] = momentum * m[i][j] + 0.5 * g[j];
        w[i][j] -= 0.02 * (m[i][j] + decay * w[i][j]);
      }
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto now = numbers(master_of(parameters[i]));
    for (std::size_t j = 0; j < now.size(); ++j) EXPECT_NEAR(now[j], w[i][j], 3e-6);
  }
}

TEST(Sgd, AgreesWithHeavyBallMomentumInDouble) { expect_agreement(0.9); }
TEST(Sgd, AgreesWithPlainDescentInDouble) { expect_agreement(0); }

TEST(Sgd, KeepsNoStateWithoutMomentumAndCoastsNowhere) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.momentum = 0;
  Sgd optimizer(config, parameters.pointers(), stream, stream);
  optimizer.visit_state([](const std::string& name, Tensor&) { ADD_FAILURE() << name; });
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
