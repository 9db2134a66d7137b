#include "src/optim/lion.h"

#include <gtest/gtest.h>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::expect_follows;
using testing::ParameterSet;

TEST(Lion, AgreesWithThePublishedRuleInDouble) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  OptimizerConfig config;
  config.betas = {0.8, 0.95};
  config.weight_decay = 0.1;
  Lion optimizer(config, parameters.pointers(), stream, stream);
  expect_follows(optimizer, parameters, stream, [](double& w, double& m, double g, double decay) {
    w -= 0.02 * (std::copysign(1.0, 0.8 * m + 0.2 * g) + decay * w);
    m = 0.95 * m + 0.05 * g;
  });
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
