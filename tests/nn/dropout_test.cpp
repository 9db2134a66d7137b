#include "hybrid_trainer/nn/dropout.h"

#include <gtest/gtest.h>

#include "support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

class DropoutTest : public ::testing::Test {
 protected:
  std::vector<double> dropped(const Pass& pass, std::uint64_t site) {
    const Tensor x = Tensor::empty({100, 200}, DType::kF32, MemoryKind::kActivations, stream_);
    std::fill_n(x.data<float>(), x.elements(), 1.0f);
    apply_dropout(x, 0.25f, pass, site, stream_);
    return values_of(x);
  }
  const Stream stream_ = test_stream();
};

TEST_F(DropoutTest, KeepsTheMeanAndDropsTheShareAskedFor) {
  double zeros = 0, sum = 0;
  for (const double value : dropped({.seed = 1, .step = 2}, 3)) {
    zeros += value == 0 ? 1 : 0;
    sum += value;
  }
  EXPECT_NEAR(zeros / 20000, 0.25, 0.015);
  EXPECT_NEAR(sum / 20000, 1, 0.02);
}

TEST_F(DropoutTest, RepeatsForBackwardAndDiffersBySeedStepAndSite) {
  const auto first = dropped({.seed = 1, .step = 2}, 3);
  EXPECT_EQ(dropped({.seed = 1, .step = 2}, 3), first);
  EXPECT_NE(dropped({.seed = 2, .step = 2}, 3), first);
  EXPECT_NE(dropped({.seed = 1, .step = 3}, 3), first);
  EXPECT_NE(dropped({.seed = 1, .step = 2}, 4), first);
}

/// So that a batch draws the same numbers however it is divided.
TEST_F(DropoutTest, OfLaterTokensDrawsWhatTheWholeBatchDrawsThere) {
  const auto whole = dropped({.seed = 1, .step = 2}, 3);
  const auto later = dropped({.seed = 1, .step = 2, .first_token = 40}, 3);
  EXPECT_EQ(std::vector(later.begin(), later.end() - 40 * 200),
            std::vector(whole.begin() + 40 * 200, whole.end()));
}

}  // namespace
}  // namespace hybrid_trainer::testing
