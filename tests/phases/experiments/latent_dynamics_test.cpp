#include "phases/experiments/model_based_planner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using Eigen::VectorXd;

/// A loss that falls by a fraction with each step, and more with action 1.
std::vector<ObservedStep> falling(std::size_t steps, double start, bool acts) {
  std::vector<ObservedStep> observation;
  double loss = start;
  for (std::size_t t = 0; t < steps; ++t) {
    const double action = acts && t % 3 == 2 ? 1 : 0;
    loss *= action > 0 ? 0.6 : 0.9;
    observation.push_back({action, VectorXd{{loss, std::cos(0.3 * static_cast<double>(t))}}});
  }
  return observation;
}

TEST(LatentDynamics, GradientMatchesFiniteDifferences) {
  LatentDynamics model(2, 7);
  const std::vector<ObservedStep> window = falling(5, 1.3, true);
  VectorXd gradient, other;
  model.loss(window, gradient);
  ASSERT_GT(gradient.norm(), 1e-3);
  double worst = 0;
  for (Eigen::Index i = 0; i < gradient.size(); i += 7) {
    constexpr double kStep = 1e-5;
    double& value = model.parameters()[i];
    const double kept = value;
    value = kept + kStep;
    const double above = model.loss(window, other);
    value = kept - kStep;
    const double below = model.loss(window, other);
    value = kept;
    worst = std::max(worst, std::abs((above - below) / (2 * kStep) - gradient[i]));
  }
  EXPECT_LT(worst, 1e-6);
}

/// Mean error of the predicted loss after `ahead` model steps, over windows not trained on.
double error_of_predictions(const LatentDynamics& model, std::size_t ahead) {
  double sum = 0;
  for (const double start : {0.7, 1.1, 1.6}) {
    const std::vector<ObservedStep> run = falling(8 + ahead, start, true);
    LatentDynamics::Latent latent;
    for (std::size_t t = 0; t < 8; ++t) latent = model.observed(latent, run[t]);
    for (std::size_t t = 8; t < run.size(); ++t) latent = model.predicted(latent, run[t].action);
    sum += std::abs(model.decoded(latent)[0] - run.back().observation[0]) / 3;
  }
  return sum;
}

TEST(LatentDynamics, PredictsLossAndActionEffects) {
  LatentDynamics model(2, 1);
  double first = 0, last = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<ObservedStep> window = falling(16, 0.5 + 0.1 * (i % 15), true);
    const double loss = model.train(window, 3e-3);
    if (i == 0) first = loss;
    last = loss;
  }
  EXPECT_LT(last, 0.1 * first);
  double stays = 0;
  for (const double start : {0.7, 1.1, 1.6}) {
    const auto run = falling(12, start, true);
    stays += std::abs(run[7].observation[0] - run.back().observation[0]) / 3;
  }
  EXPECT_LT(error_of_predictions(model, 4), 0.5 * stays);
  LatentDynamics::Latent latent;
  for (const ObservedStep& step : falling(8, 1.2, true)) latent = model.observed(latent, step);
  EXPECT_LT(model.decoded(model.predicted(latent, 1))[0],
            model.decoded(model.predicted(latent, 0))[0])
      << "an action lowers the loss";
}

TEST(LatentDynamics, ResumesFromSavedState) {
  LatentDynamics whole(2, 3), stopped(2, 3);
  for (int i = 0; i < 20; ++i) whole.train(falling(6, 1, true), 1e-3);
  for (int i = 0; i < 10; ++i) stopped.train(falling(6, 1, true), 1e-3);
  LatentDynamics resumed(2, 9);
  resumed.set_state(stopped.state());
  for (int i = 0; i < 10; ++i) resumed.train(falling(6, 1, true), 1e-3);
  EXPECT_EQ(resumed.state(), whole.state());
  EXPECT_THROW(resumed.set_state({1, 2}), DataError);
  try {
    resumed.set_state({1, 2});
  } catch (const DataError& error) {
    const std::string words = concat("has 2 numbers, want ", whole.state().size());
    EXPECT_TRUE(std::string(error.what()).ends_with(words)) << error.what();
  }
}

TEST(LatentDynamics, IgnoresNonFiniteWindow) {
  LatentDynamics model(2, 3);
  const std::vector<double> before = model.state();
  std::vector<ObservedStep> window = falling(4, 1, false);
  window[1].observation[0] = std::nan("");
  model.train(window, 1e-3);
  EXPECT_EQ(model.state(), before);
}

/// A category with prior probability 0 would make the loss infinite.
TEST(LatentDynamics, CategoryProbabilitiesStayPositive) {
  LatentDynamics model(2, 7);
  model.parameters() *= 1e3;
  const std::vector<ObservedStep> window = falling(5, 1.3, true);
  LatentDynamics::Latent observation;
  for (const ObservedStep& step : window) {
    const LatentDynamics::Latent predicted = model.predicted(observation, step.action);
    observation = model.observed(observation, step);
    for (const VectorXd& z : {predicted.z, observation.z}) {
      EXPECT_NEAR(z.sum(), LatentDynamics::kGroups, 1e-12);
      EXPECT_GE(z.minCoeff(), 0.01 / LatentDynamics::kCategories - 1e-12);
    }
  }
  EXPECT_GT(observation.z.maxCoeff(), 0.99) << "the other categories are nearly impossible";
  VectorXd gradient;
  EXPECT_TRUE(std::isfinite(model.loss(window, gradient)));
  EXPECT_TRUE(gradient.allFinite());
}

}  // namespace
}  // namespace hybrid_trainer
