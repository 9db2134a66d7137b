#include <gtest/gtest.h>

#include <cmath>

#include "src/optim/adamw.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

/// Algorithm 1 of Zhang et al. in double, for one parameter.
struct MiniReference {
  explicit MiniReference(const Parameter& parameter)
      : w(to_doubles(numbers(master_of(parameter)))),
        m(w.size()),
        v(static_cast<std::size_t>(parameter.blocks())) {}
  static std::vector<double> to_doubles(const std::vector<float>& x) {
    return {x.begin(), x.end()};
  }
  void step(const std::vector<float>& g, int t, double decay, const OptimizerConfig& config) {
    const double b1 = config.betas[0], b2 = config.betas[1];
    const std::size_t length = w.size() / v.size();
    for (std::size_t block = 0; block < v.size(); ++block) {
      double mean = 0;
      for (std::size_t i = block * length; i < (block + 1) * length; ++i)
        mean += 0.25 * std::pow(g[i], 2) / static_cast<double>(length);
      v[block] = b2 * v[block] + (1 - b2) * mean;
      const double root = std::sqrt(v[block] / (1 - std::pow(b2, t)));
      for (std::size_t i = block * length; i < (block + 1) * length; ++i) {
        m[i] = b1 * m[i] + (1 - b1) * 0.5 * static_cast<double>(g[i]);
        w[i] -= 0.02 * (m[i] / (1 - std::pow(b1, t)) / (root + config.epsilon) + decay * w[i]);
      }
    }
  }
  std::vector<double> w, m, v;
};

TEST(AdamMini, MatchesPublishedRuleInDouble) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  parameters[2].set_blocks(3);  // blocks of eight rows, like heads
  OptimizerConfig config;
  AdamMini optimizer(config, parameters.pointers(), stream, stream);
  std::vector<MiniReference> references;
  for (std::size_t i = 0; i < parameters.size(); ++i) references.emplace_back(parameters[i]);
  for (int t = 1; t <= 10; ++t) {
    parameters.set_gradients(static_cast<std::uint64_t>(t));
    optimizer.step(0.02f, 0.5f, stream);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      references[i].step(numbers(parameters[i].gradient()), t,
                         parameters[i].role() != Role::kVector ? 0.1 : 0, config);
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto w = numbers(master_of(parameters[i]));
    for (std::size_t j = 0; j < w.size(); ++j) EXPECT_NEAR(w[j], references[i].w[j], 2e-6);
  }
}

TEST(AdamMini, KeepsOneSecondMomentPerBlock) {
  const Stream stream(MemoryPool::create("device"));
  ParameterSet parameters(stream);
  parameters[2].set_blocks(3);
  AdamMini optimizer({}, parameters.pointers(), stream, stream);
  std::vector<std::string> seconds;
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (label.name.ends_with(".v"))
      seconds.push_back(concat(label.name, " ", tensor.shape().text()));
  });
  EXPECT_EQ(seconds, (std::vector<std::string>{"wide.v (6)", "embedding.v (11)", "tall.v (3)",
                                               "bias.v (1)", "square.v (9)", "large.v (41)"}));
  EXPECT_THROW(parameters[2].set_blocks(7), Error);
}

}  // namespace
}  // namespace hybrid_trainer
