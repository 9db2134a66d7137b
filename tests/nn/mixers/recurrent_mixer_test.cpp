#include "hybrid_trainer/nn/mixers.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/gradient_check.h"

// Generation with recurrent mixers: compares token by token with the entire sequence.
namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kTokens = 40, kMixerChannels = 12;

struct RecurrentCase {
  const char* name;
  std::unique_ptr<ResidualBranch> (*make)(const Stream& stream);
  friend std::ostream& operator<<(std::ostream& out, const RecurrentCase& c) {
    return out << c.name;
  }
};

std::unique_ptr<ResidualBranch> state_space(const Stream& stream) {
  const StateSpaceMixer::Spec spec{
      .width = kMixerChannels, .scan = {.heads = 4, .head_size = 6, .groups = 2, .state_size = 8}};
  return std::make_unique<StateSpaceMixer>("mix", spec, stream);
}

std::unique_ptr<ResidualBranch> delta_rule(const Stream& stream) {
  const DeltaRuleMixer::Spec spec{
      .width = kMixerChannels,
      .scan = {.key_heads = 2, .value_heads = 4, .key_size = 8, .value_size = 6}};
  return std::make_unique<DeltaRuleMixer>("mix", spec, stream);
}

std::unique_ptr<ResidualBranch> gated_convolution(const Stream& stream) {
  return std::make_unique<ShortConvolution>(
      "mix", ShortConvolution::Spec{.width = kMixerChannels, .taps = 4}, stream);
}

class RecurrentMixerTest : public ::testing::TestWithParam<RecurrentCase> {
 protected:
  RecurrentMixerTest() {
    randomize([&](const ParameterVisitor& visit) { mixer_->visit_parameters(visit); }, stream_);
  }
  std::vector<double> whole() {
    ForwardOnlyTape tape(pass_);
    return values_of(mixer_->forward(x_, Tensor{}, tape, stream_));
  }
  Tensor part(std::int64_t begin, std::int64_t end) const {
    return x_.as_rows().rows(begin, end).view({1, end - begin, kMixerChannels});
  }
  /// Decodes tokens [0, end) of text 1 from its beginning.
  std::vector<double> begin(std::int64_t end) {
    return values_of(
        mixer_->decode(part(0, end), Tensor{}, {.begun = 1}, state_.get(), pass_, stream_));
  }
  /// Decodes the following tokens. `alone`: declares that all rows belong to one text.
  std::vector<double> follow(std::int64_t begin, std::int64_t end, bool alone = false) {
    Pass pass = pass_;
    const Tensor texts = Tensor::empty({end - begin}, DType::kI32, MemoryKind::kData, stream_);
    pass.positions = Tensor::empty({1, end - begin}, DType::kI32, MemoryKind::kData, stream_);
    for (std::int64_t t = begin; t < end; ++t) {
      texts.data<std::int32_t>()[t - begin] = 1;
      pass.positions.data<std::int32_t>()[t - begin] = static_cast<std::int32_t>(t);
    }
    DecodeTexts where{.each = texts};
    if (alone) where.alone = 1;
    return values_of(
        mixer_->decode(part(begin, end), Tensor{}, where, state_.get(), pass, stream_));
  }

  const Stream stream_ = test_stream();
  const Pass pass_{.training = false};
  const Tensor x_ = normal_tensor({1, kTokens, kMixerChannels}, 1, stream_);
  std::unique_ptr<ResidualBranch> mixer_ = GetParam().make(stream_);
  std::unique_ptr<BranchState> state_ =
      mixer_->make_state({.texts = 2, .tokens = 1}, DType::kF32, stream_);
};

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

TEST_P(RecurrentMixerTest, TokenByTokenMatchesFullPass) {
  for (const std::int64_t prompt : {1, 3, 17, 40}) {
    std::vector<double> got = begin(prompt);
    for (std::int64_t t = prompt; t < kTokens; ++t) append(got, follow(t, t + 1));
    EXPECT_LT(relative_error(got, whole()), 2e-6) << prompt;
  }
}

TEST_P(RecurrentMixerTest, DecodingInPartsMatchesFullPass) {
  std::vector<double> got = begin(2);
  append(got, follow(2, 30, true));  // in chunks
  append(got, follow(30, 33, true));
  append(got, follow(33, 34));
  append(got, follow(34, kTokens));  // one by one
  EXPECT_LT(relative_error(got, whole()), 2e-6);
}

TEST_P(RecurrentMixerTest, TokensTogetherMatchSingleTokensBitForBit) {
  begin(5);
  const std::vector<double> together = follow(5, 9);
  begin(5);
  std::vector<double> alone;
  for (std::int64_t t = 5; t < 9; ++t) append(alone, follow(t, t + 1));
  EXPECT_EQ(together, alone);
}

TEST_P(RecurrentMixerTest, RestoresKeptState) {
  begin(7);
  state_->keep(1, stream_);
  const std::vector<double> first = follow(7, 12);
  state_->restore(1, stream_);
  EXPECT_EQ(follow(7, 12), first);
  EXPECT_FALSE(state_->can_rewind());
  EXPECT_TRUE(state_->can_keep());
}

TEST_P(RecurrentMixerTest, IsCausal) {
  const std::vector<double> before = whole();
  x_.data<float>()[(kTokens - 1) * kMixerChannels] += 1;
  const std::vector<double> after = whole();
  const auto rows = [](const std::vector<double>& all, std::int64_t begin, std::int64_t end) {
    return std::vector(all.begin() + begin * kMixerChannels, all.begin() + end * kMixerChannels);
  };
  EXPECT_EQ(rows(before, 0, kTokens - 1), rows(after, 0, kTokens - 1));
  EXPECT_NE(rows(before, kTokens - 1, kTokens), rows(after, kTokens - 1, kTokens));
}

INSTANTIATE_TEST_SUITE_P(All, RecurrentMixerTest,
                         ::testing::Values(RecurrentCase{"StateSpace", state_space},
                                           RecurrentCase{"DeltaRule", delta_rule},
                                           RecurrentCase{"ShortConvolution", gated_convolution}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hybrid_trainer::testing
