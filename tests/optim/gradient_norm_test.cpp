#include "hybrid_trainer/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

double norm_of(const std::vector<Parameter*>& parameters, const Stream& stream) {
  return wait_for_norm(gradient_square_sums(parameters, stream), stream);
}

TEST(GradientNorm, CoversAllGradientsAsOneVector) {
  const Stream stream(MemoryPool::create("device"));
  testing::ParameterSet parameters(stream);
  parameters.set_gradients(3, 1);
  double sum = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i == 1) continue;
    for (const float g : testing::numbers(parameters[i].gradient())) sum += double{g} * g;
  }
  EXPECT_NEAR(norm_of(parameters.pointers(), stream), std::sqrt(sum), 1e-9);
  EXPECT_EQ(norm_of({}, stream), 0);
}

TEST(GradientNorm, IsNonFiniteForNonFiniteGradient) {
  const Stream stream(MemoryPool::create("device"));
  testing::ParameterSet parameters(stream);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    parameters.set_gradients(3);
    parameters[2].gradient().data<float>()[7] = bad;
    EXPECT_FALSE(std::isfinite(norm_of(parameters.pointers(), stream)));
  }
}

TEST(ClipScale, ScalesOnlyGradientsAboveLimit) {
  EXPECT_FLOAT_EQ(clip_scale(4.0, 1.0), 0.25f);
  EXPECT_EQ(clip_scale(1.0, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(0.0, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(100.0, 0.0), 1.0f);
  EXPECT_EQ(clip_scale(std::numeric_limits<double>::infinity(), 1.0), 1.0f);
  EXPECT_EQ(clip_scale(std::numeric_limits<double>::quiet_NaN(), 1.0), 1.0f);
}

}  // namespace
}  // namespace hybrid_trainer
