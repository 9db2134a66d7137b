#include "hybrid_trainer/phases/predictor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "phases/state_fields.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

SkipBackwardConfig config_of(const std::string& name) {
  SkipBackwardConfig config;
  config.predictor = name;
  config.slow_steps = 6;
  return config;
}

void take_updates(QuadraticBowl& bowl, Predictor& predictor, int count) {
  bowl.enter_phase(Phase::kFull);
  for (int i = 0; i < count; ++i) {
    bowl.wait_for_gradient(bowl.batch(i, 0));
    bowl.apply_gradient();
    predictor.observe(bowl);
  }
}

std::vector<float> directions_of(QuadraticBowl& bowl, Predictor& predictor) {
  const auto directions = bowl.empty_like_weights(MemoryKind::kPredictor);
  for (const Tensor& tensor : directions) fill_zero(tensor, bowl.stream());
  predictor.write_directions(bowl, directions);
  std::vector<float> all;
  for (const Tensor& tensor : directions) {
    all.insert(all.end(), tensor.data<float>(), tensor.data<float>() + tensor.elements());
  }
  return all;
}

class EveryPredictor : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryPredictor, IsReadyAfterEnoughUpdates) {
  QuadraticBowl bowl;
  const auto predictor = make_predictor(config_of(GetParam()));
  take_updates(bowl, *predictor, 20);
  EXPECT_NE(predictor->readiness(), Readiness::kNotReady);
}

TEST_P(EveryPredictor, DoesNotChangeWeights) {
  QuadraticBowl bowl, untouched;
  const auto predictor = make_predictor(config_of(GetParam()));
  const auto idle = make_predictor(config_of("zero"));
  take_updates(bowl, *predictor, 20);
  take_updates(untouched, *idle, 20);
  directions_of(bowl, *predictor);
  EXPECT_EQ(bowl.flat(), untouched.flat());
  EXPECT_EQ(bowl.moments(), untouched.moments());
}

TEST_P(EveryPredictor, SaveAndLoadKeepsDirection) {
  for (const int updates : {0, 1, 4, 5, 12, 17, 23}) {
    QuadraticBowl bowl;
    const auto predictor = make_predictor(config_of(GetParam()));
    take_updates(bowl, *predictor, updates);
    State state;
    predictor->save(state);
    const auto loaded = make_predictor(config_of(GetParam()));
    loaded->load(state, bowl);
    take_updates(bowl, *predictor, 0);
    ASSERT_EQ(loaded->readiness(), predictor->readiness()) << updates << " updates";
    if (predictor->readiness() != Readiness::kReady) continue;
    EXPECT_EQ(directions_of(bowl, *loaded), directions_of(bowl, *predictor));
  }
}

TEST_P(EveryPredictor, PointsDownhillOnSmoothBowl) {
  if (GetParam() == "random") return;  // has no preferred direction
  QuadraticBowl bowl;
  const auto predictor = make_predictor(config_of(GetParam()));
  take_updates(bowl, *predictor, 30);
  if (predictor->readiness() == Readiness::kChangesNothing) return;
  const auto directions = directions_of(bowl, *predictor);
  const auto weights = bowl.flat();
  for (std::size_t i = 0; i < weights.size(); ++i) {  // the minimum is at 0
    EXPECT_LT(directions[i] * weights[i], 0) << "weight " << i;
  }
}

TEST_P(EveryPredictor, StaysFiniteAfterRevertedInfiniteJump) {
  QuadraticBowl bowl;
  const auto predictor = make_predictor(config_of(GetParam()));
  take_updates(bowl, *predictor, 30);
  const auto infinite = bowl.empty_directions();
  for (const Tensor& tensor : infinite)
    tensor.data<float>()[0] = std::numeric_limits<float>::infinity();
  predictor->follow(bowl, infinite, 0);
  take_updates(bowl, *predictor, 30);
  if (predictor->readiness() != Readiness::kReady) return;
  for (const float value : directions_of(bowl, *predictor)) EXPECT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(All, EveryPredictor, ::testing::ValuesIn(predictor_names()),
                         [](const auto& test) { return test.param; });

TEST(MakePredictor, UnknownNameSuggestsNearest) {
  try {
    make_predictor(config_of("momentun"));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("phases.skip_backward.predictor"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("did you mean momentum"), std::string::npos)
        << error.what();
  }
}

TEST(MomentumPredictor, PredictsNextOptimizerStep) {
  QuadraticBowl bowl;
  const auto predictor = make_predictor(config_of("momentum"));
  take_updates(bowl, *predictor, 5);
  const auto directions = directions_of(bowl, *predictor);
  for (std::size_t i = 0; i < directions.size(); ++i) {
    EXPECT_FLOAT_EQ(directions[i], -0.02f * 0.9f * bowl.moments()[i]);
  }
}

/// Moves a bowl's weights with zero moments along a path. Returns the predicted direction.
std::vector<float> direction_on(const std::function<float(int)>& path, int steps,
                                const SkipBackwardConfig& config = config_of("linear")) {
  QuadraticBowl bowl;
  const auto predictor = make_predictor(config);
  for (int t = 0; t < steps; ++t) {
    for (const Tensor& weight : bowl.values()) {
      for (std::int64_t k = 0; k < weight.elements(); ++k) {
        weight.data<float>()[k] = path(t);
      }
    }
    predictor->observe(bowl);
  }
  return directions_of(bowl, *predictor);
}

TEST(LinearPredictor, ContinuesStraightPath) {
  for (const float d : direction_on([](int t) { return 1.0f + 0.25f * t; }, 10)) {
    EXPECT_NEAR(d, 0.25f, 1e-6);
  }
}

TEST(LinearPredictor, StopsWherePathReverses) {
  for (const float d : direction_on([](int t) { return -0.1f * (t - 5) * (t - 5); }, 10)) {
    EXPECT_EQ(d, 0.0f) << "the last change is opposite to the first";
  }
}

SkipBackwardConfig slow_only(const std::string& name) {
  SkipBackwardConfig config = config_of(name);
  config.slow_share = 1;
  return config;
}

TEST(SlowPredictors, ContinuesStraightPath) {
  for (const char* name : {"two_timescale", "merged"}) {
    for (const int steps : {25, 26, 27}) {
      for (const float d :
           direction_on([](int t) { return 1.0f + 0.25f * t; }, steps, slow_only(name)))
        EXPECT_NEAR(d, 0.25f, 1e-5) << name << " after " << steps;
    }
  }
}

TEST(SlowPredictors, FiltersOscillation) {
  const auto wobbling = [](int t) { return 0.01f * t + (t % 2 == 0 ? 0.5f : -0.5f); };
  for (const char* name : {"two_timescale", "merged"}) {
    SkipBackwardConfig config = slow_only(name);
    config.history_interval = 1;
    config.slow_steps = 100;
    for (const float d : direction_on(wobbling, 401, config)) EXPECT_NEAR(d, 0.01f, 0.006) << name;
  }
}

TEST(TwoTimescalePredictor, BlendsMomentumByShare) {
  const auto with_share = [](double share) {
    QuadraticBowl bowl;
    SkipBackwardConfig config = config_of("two_timescale");
    config.slow_share = share;
    const auto predictor = make_predictor(config);
    take_updates(bowl, *predictor, 20);
    return directions_of(bowl, *predictor);
  };
  const auto slow = with_share(1), fast = with_share(0), mixed = with_share(0.25);
  QuadraticBowl bowl;
  const auto momentum = make_predictor(config_of("momentum"));
  take_updates(bowl, *momentum, 20);
  EXPECT_EQ(fast, directions_of(bowl, *momentum));
  for (std::size_t i = 0; i < mixed.size(); ++i)
    EXPECT_NEAR(mixed[i], 0.25f * slow[i] + 0.75f * fast[i], 1e-7);
}

/// All weights grow by 0.1 in each update, and by half in an extrapolation in between.
std::vector<float> direction_after_a_jump(const std::string& name, bool tells) {
  QuadraticBowl bowl;
  const auto predictor = make_predictor(slow_only(name));
  const auto grow = [&](int updates) {
    for (int i = 0; i < updates; ++i) {
      for (const Tensor& weight : bowl.values()) {
        for (std::int64_t k = 0; k < weight.elements(); ++k) weight.data<float>()[k] += 0.1f;
      }
      predictor->observe(bowl);
    }
  };
  grow(22);
  const auto direction = bowl.empty_directions();
  bowl.add_weights(direction, 0, 1);
  bowl.move_along(direction, 0.5);
  if (tells) predictor->follow(bowl, direction, 0.5);
  grow(7);
  return directions_of(bowl, *predictor);
}

TEST(SlowPredictors, IgnoresJumpsInWeightChange) {
  for (const char* name : {"two_timescale", "merged"}) {
    for (const float d : direction_after_a_jump(name, true)) EXPECT_NEAR(d, 0.1, 1e-5) << name;
    for (const float d : direction_after_a_jump(name, false)) EXPECT_GT(d, 0.11) << name;
  }
}

TEST(MergedPredictor, StopsWherePathReverses) {
  for (const float d :
       direction_on([](int t) { return -0.1f * (t - 15) * (t - 15); }, 24, slow_only("merged")))
    EXPECT_EQ(d, 0.0f);
}

TEST(LinearPredictor, AllocatesMemoryOnFirstUse) {
  QuadraticBowl bowl;
  const auto predictor = make_predictor(config_of("linear"));
  const auto live = [&] {
    return bowl.stream().pool()->use().live[static_cast<std::size_t>(MemoryKind::kPredictor)];
  };
  EXPECT_EQ(live(), 0u);
  take_updates(bowl, *predictor, 1);
  EXPECT_GE(live(), 4 * QuadraticBowl::kWeights * sizeof(float));
}

TEST(RandomPredictor, MatchesMomentumLengthInNewDirections) {
  QuadraticBowl bowl;
  const auto momentum = make_predictor(config_of("momentum")),
             random = make_predictor(config_of("random"));
  take_updates(bowl, *random, 20);
  const std::vector<float> coasting = directions_of(bowl, *momentum),
                           drawn = directions_of(bowl, *random),
                           next = directions_of(bowl, *random);
  const auto dot = [](const std::vector<float>& x, const std::vector<float>& y, std::size_t begin,
                      std::size_t end) {
    return std::inner_product(x.begin() + static_cast<std::ptrdiff_t>(begin),
                              x.begin() + static_cast<std::ptrdiff_t>(end),
                              y.begin() + static_cast<std::ptrdiff_t>(begin), 0.0);
  };
  for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 6}, {6, 10}}) {
    const double squares = dot(coasting, coasting, begin, end);
    EXPECT_NEAR(dot(drawn, drawn, begin, end), squares, 1e-5 * squares);
    EXPECT_NEAR(dot(next, next, begin, end), squares, 1e-5 * squares);
    EXPECT_LT(std::abs(dot(drawn, coasting, begin, end)), 0.95 * squares);
    EXPECT_LT(std::abs(dot(drawn, next, begin, end)), 0.95 * squares);
  }
}

}  // namespace
}  // namespace hybrid_trainer
