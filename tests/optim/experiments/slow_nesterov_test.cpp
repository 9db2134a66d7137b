#include "src/optim/experiments/slow_nesterov.h"

#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::clone;
using testing::master_of;
using testing::numbers;
using testing::ParameterSet;

constexpr float kPathRate = 0.01f;
constexpr std::int64_t kSteps = 5;

class SlowNesterovTest : public ::testing::Test {
 protected:
  std::unique_ptr<Optimizer> sgd(ParameterSet& parameters) {
    OptimizerConfig config;
    config.name = "sgd";
    config.weight_decay = 0;
    return make_optimizer(config, parameters.pointers(), stream_);
  }
  SlowNesterov slow(ParameterSet& parameters) { return slow(parameters, stream_); }
  SlowNesterov slow(ParameterSet& parameters, const Stream& home) {
    OptimizerConfig config;
    config.slow_momentum = 0.5;
    config.slow_momentum_steps = kSteps;
    config.learning_rate = 0.2;
    return {sgd(parameters), parameters.pointers(), config, home};
  }
  /// Runs steps with each of the given shares of the learning rate.
  void run(SlowNesterov& optimizer, ParameterSet& parameters, const std::vector<double>& shares) {
    for (const double share : shares) {
      parameters.set_gradients(++seed_);
      optimizer.set_next_share(share);
      optimizer.step(kPathRate, 1, stream_);
    }
  }
  Stream stream_{MemoryPool::create("device")};
  std::uint64_t seed_ = 0;
};

TEST_F(SlowNesterovTest, LookaheadIsShareOfMeanChange) {
  ParameterSet parameters(stream_);
  SlowNesterov optimizer = slow(parameters);
  std::vector<double> x, u, m;
  for (const float value : numbers(master_of(parameters[2]))) x.push_back(value);
  u.assign(x.size(), 0);
  m.assign(x.size(), 0);
  double share = 0;
  for (const double next : {0.0, 0.3, 0.5, 0.5, 0.2, 0.0}) {
    run(optimizer, parameters, {next});
    const std::vector<float> gradient = numbers(parameters[2].gradient()),
                             now = numbers(master_of(parameters[2]));
    for (std::size_t i = 0; i < x.size(); ++i) {
      m[i] = 0.95 * m[i] + gradient[i];
      const double moved = x[i] + share * u[i] - kPathRate * m[i];
      if (share > 0 || next > 0) u[i] = 0.8 * u[i] + 0.2 * (moved - x[i]);
      x[i] = moved;
      ASSERT_NEAR(now[i], x[i] + next * u[i], 1e-5) << i;
    }
    EXPECT_FLOAT_EQ(static_cast<float>(optimizer.share()), static_cast<float>(next));
    share = next;
  }
}

TEST_F(SlowNesterovTest, WithZeroShareMatchesBaseOptimizer) {
  ParameterSet with(stream_), without(stream_);
  SlowNesterov optimizer = slow(with);
  const auto other = sgd(without);
  run(optimizer, with, {0, 0, 0});
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    without.set_gradients(seed);
    other->step(kPathRate, 1, stream_);
  }
  EXPECT_TRUE(with.has_values(without.copies()));
}

/// Runs ahead by slow_momentum 0.5 of the highest learning rate, 0.2.
TEST_F(SlowNesterovTest, ShareFollowsRateAndEndsInLastThird) {
  ParameterSet parameters(stream_);
  SlowNesterov optimizer = slow(parameters);
  const auto share_at = [&](std::int64_t update, double rate) {
    optimizer.set_progress({update, 9, rate});
    parameters.set_gradients(++seed_);
    optimizer.step(kPathRate, 1, stream_);
    return static_cast<float>(optimizer.share());
  };
  EXPECT_EQ(share_at(1, 0.2), 0.5f);
  EXPECT_EQ(share_at(5, 0.05), 0.125f);
  EXPECT_EQ(share_at(6, 0.2), 0.0f);
}

TEST_F(SlowNesterovTest, RestartsMeanAfterPause) {
  ParameterSet rested(stream_), fresh(stream_);
  SlowNesterov optimizer = slow(rested), other = slow(fresh);
  run(optimizer, rested, {0.4, 0.4, 0.4, 0.0, 0.0});
  seed_ = 0;
  run(other, fresh, {0.0, 0.0, 0.0, 0.0, 0.0});
  for (std::size_t i = 0; i < rested.size(); ++i)
    copy(master_of(fresh[i]), master_of(rested[i]), stream_);
  std::vector<Tensor> state;
  optimizer.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (label.role != StateRole::kSlowMomentum) state.push_back(tensor);
  });
  std::size_t at = 0;
  other.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (label.role != StateRole::kSlowMomentum) copy(tensor, state[at++], stream_);
  });
  for (auto* const continued : {&optimizer, &other}) {
    seed_ = 7;
    run(*continued, continued == &optimizer ? rested : fresh, {0.3, 0.3});
  }
  EXPECT_TRUE(rested.has_values(fresh.copies())) << "moves before the pause are forgotten";
}

TEST_F(SlowNesterovTest, MomentumDirectionMatchesZeroGradientStep) {
  ParameterSet parameters(stream_);
  SlowNesterov optimizer = slow(parameters);
  run(optimizer, parameters, {0.3, 0.4, 0.5});
  std::vector<Tensor> directions;
  for (Parameter* parameter : parameters.pointers())
    directions.push_back(
        Tensor::empty(parameter->shape(), DType::kF32, MemoryKind::kPredictor, stream_));
  optimizer.set_next_share(0.6);
  optimizer.write_momentum_directions(directions, kPathRate, stream_);
  const auto before = parameters.copies();
  parameters.zero_gradients();
  optimizer.step(kPathRate, 1, stream_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto direction = numbers(directions[i]), now = numbers(master_of(parameters[i])),
               then = numbers(before[i]);
    for (std::size_t j = 0; j < now.size(); ++j)
      ASSERT_NEAR(direction[j], now[j] - then[j], 2e-6) << parameters[i].name();
  }
}

TEST_F(SlowNesterovTest, SkipsWeightWithoutGradientAndRefreshesCopies) {
  ParameterSet parameters(stream_);
  SlowNesterov optimizer = slow(parameters);
  run(optimizer, parameters, {0.5, 0.5});
  for (Parameter* parameter : parameters.pointers()) parameter->compute_in(DType::kBF16, stream_);
  const auto before = parameters.copies();
  parameters.set_gradients(9, 1);
  optimizer.step(kPathRate, 1, stream_);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_EQ(testing::same_bits(master_of(parameters[i]), before[i]), i == 1);
  const Weight copy = parameters[2].acquire(DType::kBF16, stream_);
  EXPECT_EQ(copy.tensor().data<BFloat16>()[5].bits,
            to_bfloat16(master_of(parameters[2]).data<float>()[5]).bits);
}

TEST_F(SlowNesterovTest, ResumesBitwiseFromStateInOtherPool) {
  const Stream host(MemoryPool::create("host"));
  ParameterSet near(stream_), far(stream_);
  SlowNesterov one = slow(near), other = slow(far, host);
  run(one, near, {0.3, 0.5});
  for (std::size_t i = 0; i < far.size(); ++i) copy(master_of(far[i]), master_of(near[i]), stream_);
  std::vector<Tensor> saved;
  one.visit_state([&](const StateLabel&, Tensor& state) { saved.push_back(state); });
  std::size_t at = 0;
  other.visit_state([&](const StateLabel&, Tensor& state) { copy(state, saved[at++], stream_); });
  other.set_steps_taken(one.steps_taken());
  std::map<std::string, double> numbers_of_one;
  one.visit_numbers([&](const std::string& name, double& value) { numbers_of_one[name] = value; });
  ASSERT_EQ(numbers_of_one.size(), 1u);
  other.visit_numbers(
      [&](const std::string& name, double& value) { value = numbers_of_one.at(name); });
  EXPECT_EQ(other.share(), one.share());
  run(one, near, {0.4, 0.0});
  seed_ = 2;
  run(other, far, {0.4, 0.0});
  EXPECT_TRUE(far.has_values(near.copies()));
  one.visit_state([](const StateLabel& label, Tensor& state) {
    if (label.name == "bias.slow") state = Tensor{};
  });
  EXPECT_THROW(one.step(kPathRate, 1, stream_), Error);
}

}  // namespace
}  // namespace hybrid_trainer
