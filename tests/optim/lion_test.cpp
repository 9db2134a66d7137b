#include "src/optim/lion.h"

#include <gtest/gtest.h>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

TEST(Lion, AgreesWithThePublishedRuleInDouble) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.betas = {0.8, 0.95};
  config.weight_decay = 0.1;
  Lion optimizer(config, parameters.pointers(), stream, stream);
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
        const double mixture = 0.8 * m[i][j] + 0.2 * 0.5 * g[j];
        w[i][j] -= 0.02 * (std::copysign(1.0, mixture) + decay * w[i][j]);
        m[i][j] = 0.95 * m[i][j] + 0.05 * 0.5 * g[j];
      }
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto now = numbers(master_of(parameters[i]));
    for (std::size_t j = 0; j < now.size(); ++j) EXPECT_NEAR(now[j], w[i][j], 3e-6);
  }
}

TEST(Lion, KeepsFourBytesForEachElement) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  Lion optimizer({}, parameters.pointers(), stream, stream);
  std::int64_t elements = 0;
  std::size_t bytes = 0;
  for (const Parameter* parameter : parameters.pointers()) elements += parameter->elements();
  optimizer.visit_state([&](const std::string&, Tensor& m) { bytes += m.bytes(); });
  EXPECT_EQ(bytes, 4 * static_cast<std::size_t>(elements));
}

}  // namespace
}  // namespace hybrid_trainer
