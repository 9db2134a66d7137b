#include "src/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

/// Algorithm 2 of Loshchilov & Hutter in double, element by element.
struct Reference {
  double w, m = 0, v = 0;
  void step(double g, int t, double lr, double decay, const OptimizerConfig& config) {
    const double b1 = config.betas[0], b2 = config.betas[1];
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, t)), v_hat = v / (1 - std::pow(b2, t));
    w -= lr * (m_hat / (std::sqrt(v_hat) + config.epsilon) + decay * w);
  }
};

TEST(AdamW, MatchesAlgorithmInDouble) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  AdamW optimizer(config, parameters.pointers(), stream, stream);
  std::vector<std::vector<Reference>> references(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const float w : numbers(master_of(parameters[i]))) references[i].push_back({w});
  }
  for (int t = 1; t <= 20; ++t) {
    const float lr = 0.01f / static_cast<float>(t);
    parameters.set_gradients(static_cast<std::uint64_t>(t));
    optimizer.step(lr, 0.5f, stream);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto g = numbers(parameters[i].gradient());
      for (std::size_t j = 0; j < g.size(); ++j) {
        references[i][j].step(0.5 * g[j], t, lr, parameters[i].role() != Role::kVector ? 0.1 : 0,
                              config);
      }
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto w = numbers(master_of(parameters[i]));
    for (std::size_t j = 0; j < w.size(); ++j) EXPECT_NEAR(w[j], references[i][j].w, 2e-6);
  }
}

TEST(AdamW, MatchesPyTorchValues) {
  // Values from torch.optim.AdamW(lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1), PyTorch
  // 1.13, float64, gradients sin(1), sin(2), ...
  const Stream stream(MemoryPool::create("device"));
  Parameter parameter("w", {1, 3}, Role::kMatrix, stream);
  testing::StepGradients gradients([&](const ParameterVisitor& visit) { visit(parameter); },
                                   stream);
  for (int j = 0; j < 3; ++j) master_of(parameter).data<float>()[j] = static_cast<float>(j + 1);
  AdamW optimizer(OptimizerConfig{}, {&parameter}, stream, stream);
  for (int t = 0; t < 5; ++t) {
    gradients.begin();
    {
      const GradientContribution to(parameter, stream);
      for (int j = 0; j < 3; ++j)
        to.gradient().data<float>()[j] = std::sin(static_cast<float>(1 + 3 * t + j));
    }
    optimizer.step(0.1f, 1, stream);
  }
  const std::vector<double> golden{0.804299745, 1.767666752, 2.759653391};
  const auto w = numbers(master_of(parameter));
  for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(w[j], golden[j], 2e-6);
}

TEST(AdamW, RejectsSingleBeta) {
  const Stream stream(MemoryPool::create("device"));
  OptimizerConfig config;
  config.betas = {0.9};
  EXPECT_THROW(AdamW(config, {}, stream, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer
