#include "hybrid_trainer/nn/dropout.h"

#include <gtest/gtest.h>

#include "tests/support/test_tensors.h"

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

TEST_F(DropoutTest, KeepsMeanAndDropsRequestedShare) {
  double zeros = 0, sum = 0;
  for (const double value : dropped({.seed = 1, .step = 2}, 3)) {
    zeros += value == 0 ? 1 : 0;
    sum += value;
  }
  EXPECT_NEAR(zeros / 20000, 0.25, 0.015);
  EXPECT_NEAR(sum / 20000, 1, 0.02);
}

TEST_F(DropoutTest, DependsOnlyOnSeedStepAndSite) {
  const auto first = dropped({.seed = 1, .step = 2}, 3);
  EXPECT_EQ(dropped({.seed = 1, .step = 2}, 3), first);
  EXPECT_NE(dropped({.seed = 2, .step = 2}, 3), first);
  EXPECT_NE(dropped({.seed = 1, .step = 3}, 3), first);
  EXPECT_NE(dropped({.seed = 1, .step = 2}, 4), first);
}

/// A batch draws the same numbers however it is divided.
TEST_F(DropoutTest, LaterTokensMatchWholeBatch) {
  const auto whole = dropped({.seed = 1, .step = 2}, 3);
  const auto later = dropped({.seed = 1, .step = 2, .first_token = 40}, 3);
  EXPECT_EQ(std::vector(later.begin(), later.end() - 40 * 200),
            std::vector(whole.begin() + 40 * 200, whole.end()));
}

/// Segments of two sequences, and rows that are token-expert pairs in a different order.
TEST_F(DropoutTest, SegmentsAndExpertRowsMatchWholeBatch) {
  constexpr std::int64_t kWidth = 200, kWhole = 50, kBegin = 20, kTokens = 10, kPerToken = 2;
  const auto drop_ones = [&](std::int64_t rows, const Pass& pass, const TokenRows& of) {
    const Tensor x = Tensor::empty({rows, kWidth}, DType::kF32, MemoryKind::kActivations, stream_);
    std::fill_n(x.data<float>(), x.elements(), 1.0f);
    apply_dropout(x, 0.25f, pass, 3, stream_, of);
    return values_of(x);
  };
  const auto row_of = [&](const std::vector<double>& values, std::int64_t row) {
    return std::vector(values.begin() + row * kWidth, values.begin() + (row + 1) * kWidth);
  };
  const Pass whole{.seed = 1, .step = 2};
  SegmentCarry carry;
  carry.set_place({kBegin, kTokens, kWhole, {}});
  const Pass segment{.seed = 1, .step = 2, .first_token = kBegin, .carry = &carry};
  const auto tokens = drop_ones(2 * kWhole, whole, {});
  const auto part = drop_ones(2 * kTokens, segment, {});
  for (std::int64_t sequence = 0; sequence < 2; ++sequence)
    for (std::int64_t t = 0; t < kTokens; ++t)
      EXPECT_EQ(row_of(part, sequence * kTokens + t),
                row_of(tokens, sequence * kWhole + kBegin + t));

  const Tensor pairs =
      Tensor::empty({2 * kTokens * kPerToken}, DType::kI32, MemoryKind::kData, stream_);
  const auto count = static_cast<std::int32_t>(pairs.elements());
  for (std::int32_t row = 0; row < count; ++row) pairs.data<std::int32_t>()[row] = count - 1 - row;
  const auto in_order = drop_ones(2 * kWhole * kPerToken, whole, {{}, kPerToken});
  const auto sorted = drop_ones(count, segment, {pairs, kPerToken});
  for (std::int32_t row = 0; row < count; ++row) {
    const std::int64_t pair = count - 1 - row, token = pair / kPerToken;
    const std::int64_t in_whole = token / kTokens * kWhole + kBegin + token % kTokens;
    EXPECT_EQ(row_of(sorted, row), row_of(in_order, in_whole * kPerToken + pair % kPerToken));
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
