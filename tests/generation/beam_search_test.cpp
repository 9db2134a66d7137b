#include "src/generation/beam_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLetters = 7, kLongest = 5;
using TokenIds = std::vector<std::int32_t>;

void no_rule(std::span<float>, std::span<const std::int32_t>) {}

class BeamSearchTest : public ::testing::Test {
 protected:
  static std::unique_ptr<LanguageModel> made(const std::string& family, const Stream& stream) {
    ModelConfig config{.family = family, .layers = 2, .heads = 2, .width = 16, .context = 12};
    config.vocabulary = kLetters;
    if (family == "mamba2") {
      config.heads = ModelConfig{}.heads;
      config.state_space = {.heads = 2, .head_size = 16, .state_size = 8};
    }
    auto model = make_model(config, 3, stream);
    testing::randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); },
                       stream);
    return model;
  }
  TokenIds write(std::int64_t beams, const BeamSettings& settings) {
    BeamSearch search(*model_, {.texts = beams, .tokens = settings.longest}, DType::kF32, stream_);
    return search.write(beginning_, settings, no_rule);
  }
  /// Log-likelihood of `written` after the beginning, computed token by token with full passes.
  double log_likelihood(const TokenIds& written) {
    TokenIds text(beginning_);
    double sum = 0;
    for (const std::int32_t id : written) {
      const Tensor tokens =
          Tensor::empty({1, std::ssize(text)}, DType::kI32, MemoryKind::kData, stream_);
      std::ranges::copy(text, tokens.data<std::int32_t>());
      const Tensor all = model_->logits(tokens, {.training = false}, stream_);
      const float* const last = all.data<float>() + (all.size(0) - 1) * all.size(1);
      double total = 0;
      for (std::int64_t i = 0; i < kLetters; ++i) total += std::exp(double{last[i]});
      sum += double{last[id]} - std::log(total);
      text.push_back(id);
    }
    return sum;
  }
  const Stream stream_{MemoryPool::create("test")};
  const std::unique_ptr<LanguageModel> model_ = made("gpt2", stream_);
  const TokenIds beginning_{3, 1};
};

/// With as many beams as there are prefixes, the search is exhaustive.
TEST_F(BeamSearchTest, WithEnoughBeamsFindsLikeliestText) {
  double best = -std::numeric_limits<double>::infinity();
  TokenIds wanted;
  constexpr auto kTokens = static_cast<std::int32_t>(kLetters);
  for (std::int32_t code = 0; code < kTokens * kTokens * kTokens; ++code) {
    const TokenIds text{code / (kTokens * kTokens), code / kTokens % kTokens, code % kTokens};
    const double here = log_likelihood(text);
    if (here > best) best = here, wanted = text;
  }
  EXPECT_EQ(write(kLetters * kLetters, {.longest = kLongest}), wanted);
}

TEST_F(BeamSearchTest, SingleBeamIsGreedyDecoding) {
  TokenIds wanted;
  for (std::int64_t i = std::ssize(beginning_); i < kLongest; ++i) {
    double best = -std::numeric_limits<double>::infinity();
    TokenIds next;
    for (std::int32_t id = 0; id < kLetters; ++id) {
      TokenIds text(wanted);
      text.push_back(id);
      const double here = log_likelihood(text);
      if (here > best) best = here, next = text;
    }
    wanted = next;
  }
  EXPECT_EQ(write(1, {.longest = kLongest}), wanted);
  const TokenIds ended = write(1, {.longest = kLongest, .end_tokens = {wanted.front()}});
  EXPECT_EQ(ended, TokenIds{wanted.front()}) << "the token that ends it is the last one";
}

/// The length penalty decides which of the ended texts wins: a high one prefers long texts.
TEST_F(BeamSearchTest, LengthPenaltyControlsTextLength) {
  const auto length = [&](double penalty) {
    return write(4, {.longest = 10,
                     .end_tokens = {0, 1, 2},
                     .length_penalty = penalty,
                     .end = EarlyStopping::kCertain})
        .size();
  };
  EXPECT_LT(length(-4), length(8));
}

TEST_F(BeamSearchTest, RulesSeeWholeTextAndForbidTokens) {
  BeamSearch search(*model_, {.texts = 3, .tokens = kLongest}, DType::kF32, stream_);
  const TokenIds written =
      search.write(beginning_, {.longest = kLongest},
                   [&](std::span<float> scores, std::span<const std::int32_t> text) {
                     EXPECT_TRUE(std::ranges::equal(text.first(2), beginning_));
                     for (std::int32_t id = 0; id < kLetters; ++id)
                       if (id != std::ssize(text)) scores[static_cast<std::size_t>(id)] = -1e30F;
                   });
  EXPECT_EQ(written, (TokenIds{2, 3, 4}));
}

TEST_F(BeamSearchTest, RecurrentModelAllowsOnlyOneBeam) {
  const auto recurrent = made("mamba2", stream_);
  BeamSearch one(*recurrent, {.texts = 1, .tokens = kLongest}, DType::kF32, stream_);
  EXPECT_EQ(std::ssize(one.write(beginning_, {.longest = kLongest}, no_rule)), 3);
  BeamSearch two(*recurrent, {.texts = 2, .tokens = kLongest}, DType::kF32, stream_);
  EXPECT_THROW(two.write(beginning_, {.longest = kLongest}, no_rule), Error);
}

}  // namespace
}  // namespace hybrid_trainer
