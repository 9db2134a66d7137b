#include "src/optim/momentum_optimizers.h"

#include <gtest/gtest.h>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::expect_follows;
using testing::ParameterSet;

TEST(Lion, MatchesPublishedRuleInDouble) {
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

/// Updates are signs, so rounding m matters only if β1·m and the gradient nearly cancel.
TEST(Lion, LowBitStateKeepsMostUpdates) {
  const Stream stream(MemoryPool::create("device"));
  for (const std::int64_t bits : {16, 8}) {
    ParameterSet parameters(stream), exact_parameters(stream);
    OptimizerConfig config;
    Lion exact(config, {&exact_parameters[5]}, stream, stream);
    config.state_bits = bits;
    Lion rounded(config, {&parameters[5]}, stream, stream);
    double differing = 0;
    for (std::uint64_t t = 1; t <= 10; ++t) {
      parameters.set_gradients(t);
      exact_parameters.set_gradients(t);
      copy(testing::master_of(parameters[5]), testing::master_of(exact_parameters[5]), stream);
      rounded.step(0.02f, 1, stream);
      exact.step(0.02f, 1, stream);
      const auto got = testing::numbers(testing::master_of(parameters[5])),
                 wanted = testing::numbers(testing::master_of(exact_parameters[5]));
      for (std::size_t i = 0; i < got.size(); ++i) differing += got[i] != wanted[i];
    }
    const double share = differing / (10.0 * 41 * 101);
    EXPECT_LT(share, bits == 16 ? 0.003 : 0.02) << bits;
    EXPECT_GT(share, 0) << bits;
  }
}

}  // namespace
}  // namespace hybrid_trainer
