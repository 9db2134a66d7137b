#include "src/optim/predicted_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::clone;
using testing::numbers;
using testing::ParameterSet;

using Numbers = std::vector<float>;
constexpr float kRate = 0.01f;

/// AdamW or Muon after three exact steps, with one pending gradient.
class PredictedWeightsTest : public ::testing::Test {
 protected:
  void use(const std::string& optimizer, const std::string& device_side, double share = 1,
           bool in_same_memory = false) {
    config_.name = optimizer;
    optimizer_ = make_optimizer(config_, set_.pointers(), stream_);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      set_.set_gradients(step);
      optimizer_->step(kRate, 1, stream_);
    }
    predicted_.emplace(config_, set_.pointers(), *optimizer_,
                       WeightPrediction{device_side, share, in_same_memory}, stream_);
  }
  std::vector<OwnGradient> gradients(std::size_t count) const {
    const auto of = [](const Parameter& parameter) { return parameter.gradient(); };
    return std::vector<OwnGradient>(count, OwnGradient{of, kRate, 1});
  }
  std::vector<Numbers> weights() {
    std::vector<Numbers> all;
    for (Parameter* parameter : set_.pointers())
      all.push_back(numbers(parameter->acquire_master(stream_)));
    return all;
  }
  static double distance(const std::vector<Numbers>& x, const std::vector<Numbers>& y) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t k = 0; k < x[i].size(); ++k)
        sum += std::pow(static_cast<double>(x[i][k]) - static_cast<double>(y[i][k]), 2);
    }
    return std::sqrt(sum);
  }
  const Stream stream_{MemoryPool::create("device")};
  ParameterSet set_{stream_};
  OptimizerConfig config_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<PredictedWeights> predicted_;
};

TEST_F(PredictedWeightsTest, ExactWeightsAreRestoredOnRequestAndAtEnd) {
  for (const bool in_same_memory : {false, true}) {
    use("adamw", "anticipated", 1, in_same_memory);
    const auto exact = weights();
    EXPECT_FALSE(predicted_->are_in_place());
    predicted_->with_exact([&] { EXPECT_EQ(weights(), exact); });
    predicted_->begin();
    EXPECT_TRUE(predicted_->are_in_place());
    EXPECT_EQ(weights(), exact) << "copies at first";
    predicted_->predict(gradients(1));
    const auto moved = weights();
    EXPECT_NE(moved, exact);
    predicted_->with_exact([&] { EXPECT_EQ(weights(), exact); });
    EXPECT_EQ(weights(), moved);
    EXPECT_THROW(predicted_->with_exact([&]() -> void {
      EXPECT_EQ(weights(), exact);
      throw DataError("meanwhile");
    }),
                 DataError);
    EXPECT_EQ(weights(), moved);
    predicted_->end();
    EXPECT_FALSE(predicted_->are_in_place());
    EXPECT_EQ(weights(), exact);
    predicted_->end();
    EXPECT_EQ(weights(), exact);
  }
}

TEST_F(PredictedWeightsTest, ExchangesValuesInPlace) {
  use("adamw", "anticipated", 1, true);
  const auto place = [&] { return set_[0].acquire_master(stream_).tensor().raw(); };
  const void* const memory = place();
  const auto exact = weights();
  predicted_->begin();
  predicted_->predict(gradients(1));
  const auto moved = weights();
  predicted_->exchange_values();
  EXPECT_EQ(weights(), exact);
  predicted_->exchange_values();
  EXPECT_EQ(weights(), moved);
  predicted_->end();
  EXPECT_EQ(place(), memory);
}

TEST_F(PredictedWeightsTest, FullGradientPredictsUpdateClosely) {
  for (const char* optimizer : {"adamw", "muon"}) {
    use(optimizer, "anticipated");
    const auto before = weights();
    set_.set_gradients(9);
    predicted_->begin();
    predicted_->predict(gradients(1));
    const auto guess = weights();
    predicted_->end();
    optimizer_->step(kRate, 1, stream_);
    const auto after = weights();
    EXPECT_LT(distance(guess, after), 0.75 * distance(before, after)) << optimizer;
  }
}

TEST_F(PredictedWeightsTest, ScalesOwnShareToFullGradient) {
  use("adamw", "anticipated", 0.25);
  predicted_->begin();
  predicted_->predict(gradients(1));
  const auto of_part = weights();
  predicted_->end();
  predicted_.emplace(config_, set_.pointers(), *optimizer_,
                     WeightPrediction{.device_side = "anticipated"}, stream_);
  std::vector<OwnGradient> whole = gradients(1);
  whole.front().gradient_scale = 4;
  predicted_->begin();
  predicted_->predict(whole);
  EXPECT_EQ(weights(), of_part);
}

TEST_F(PredictedWeightsTest, NoneKeepsExactWeights) {
  use("adamw", "none");
  const auto exact = weights();
  predicted_->begin();
  predicted_->predict(gradients(2));
  EXPECT_EQ(weights(), exact);
}

/// With each pending gradient estimated by the mean m̂, each future update is −η·m̂/(√v̂ + ε).
TEST_F(PredictedWeightsTest, MomentumRepeatsMeanUpdate) {
  use("adamw", "momentum");
  std::map<const Parameter*, std::pair<Numbers, Numbers>> moments;
  optimizer_->visit_state([&](const StateLabel& label, Tensor& tensor) {
    auto& [m, v] = moments[label.parameter];
    (label.role == StateRole::kMomentum ? m : v) = numbers(tensor);
  });
  const auto before = weights();
  predicted_->begin();
  for (const std::size_t updates : {1u, 2u, 4u}) {
    predicted_->predict(gradients(updates));
    const auto after = weights();
    for (std::size_t i = 0; i < after.size(); ++i) {
      const auto& [m, v] = moments.at(&set_[i]);
      const bool decays = set_[i].role() != Role::kVector;
      const double kept = 1 - static_cast<double>(kRate) * (decays ? config_.weight_decay : 0);
      for (std::size_t k = 0; k < after[i].size(); ++k) {
        const double mean = static_cast<double>(m[k]) / (1 - std::pow(config_.betas[0], 3)),
                     square = static_cast<double>(v[k]) / (1 - std::pow(config_.betas[1], 3));
        const double update =
            static_cast<double>(kRate) * mean / (std::sqrt(square) + config_.epsilon);
        double wanted = before[i][k];
        for (std::size_t step = 0; step < updates; ++step) wanted = kept * wanted - update;
        ASSERT_NEAR(after[i][k], wanted, 2e-6) << set_[i].name() << " after " << updates;
      }
    }
  }
}

TEST_F(PredictedWeightsTest, SlicesAreMiddlesOfLargeWeights) {
  Parameter large("large", {100, 100}, Role::kMatrix, stream_),
      small("small", {7}, Role::kVector, stream_);
  for (Parameter* parameter : {&large, &small}) {
    const Weight values = parameter->acquire_master(stream_, Use::kChange);
    for (std::int64_t i = 0; i < parameter->elements(); ++i)
      values.tensor().data<float>()[i] = static_cast<float>(i);
  }
  const auto optimizer = make_optimizer(config_, {&large, &small}, stream_);
  PredictedWeights weights(config_, {&large, &small}, *optimizer, {.device_side = "none"}, stream_);
  EXPECT_EQ(weights.slice_elements(), (std::vector<std::int64_t>{8192, 7}));
  const auto change_first = [&] {
    const Weight values = small.acquire_master(stream_, Use::kChange);
    values.tensor().data<float>()[0] = 77;
  };
  for (const bool of_exact : {false, true}) {
    const auto slices = numbers(weights.slices(of_exact));
    ASSERT_EQ(slices.size(), 8192u + 7u);
    EXPECT_EQ(slices[0], 904);
    EXPECT_EQ(slices[8191], 904 + 8191);
    EXPECT_EQ(slices[8192], 0);
    EXPECT_EQ(slices[8198], 6);
  }
  weights.begin();
  change_first();
  EXPECT_EQ(numbers(weights.slices(false))[8192], 77);
  EXPECT_EQ(numbers(weights.slices(true))[8192], 0);
}

}  // namespace
}  // namespace hybrid_trainer
