#include "hybrid_trainer/nn/initialization.h"

#include <gtest/gtest.h>

#include "support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

class InitializationTest : public ::testing::Test {
 protected:
  Parameter drawn(const std::string& name, std::uint64_t seed) {
    Parameter parameter = make_parameter(name, {200, 100}, stream_);
    initialize_normal(parameter, 0.5, seed, stream_);
    return parameter;
  }
  const Stream stream_ = test_stream();
};

TEST_F(InitializationTest, NormalHasTheDeviationAskedFor) {
  const auto values = values_of(drawn("w", 1).value);
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(dot(values, values) / static_cast<double>(values.size()), 0.25, 0.01);
}

TEST_F(InitializationTest, NormalDependsOnSeedAndNameAlone) {
  EXPECT_TRUE(same_bits(drawn("w", 1).value, drawn("w", 1).value));
  EXPECT_FALSE(same_bits(drawn("w", 1).value, drawn("w", 2).value));
  EXPECT_FALSE(same_bits(drawn("w", 1).value, drawn("v", 1).value));
}

TEST_F(InitializationTest, GradientsComeAndGo) {
  Parameter parameter = make_parameter("w", {200, 100}, stream_);
  const auto visit_all = [&](const ParameterVisitor& visit) { visit(parameter); };
  const auto gradient_bytes = [&] {
    return stream_.pool()->use().live[static_cast<std::size_t>(MemoryKind::kGradients)];
  };
  EXPECT_FALSE(parameter.gradient.defined());
  allocate_gradients(visit_all, stream_);
  EXPECT_GE(gradient_bytes(), 80000u);
  EXPECT_EQ(parameter.take_gradient_mode(), kernels::GradientMode::kOverwrite);
  EXPECT_EQ(parameter.take_gradient_mode(), kernels::GradientMode::kAccumulate);
  void* const memory = parameter.gradient.raw();
  allocate_gradients(visit_all, stream_);
  EXPECT_EQ(parameter.gradient.raw(), memory);
  EXPECT_FALSE(parameter.has_gradient);
  free_gradients(visit_all);
  EXPECT_EQ(gradient_bytes(), 0u);
}

}  // namespace
}  // namespace hybrid_trainer::testing
