#include "hybrid_trainer/generation/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> kLogits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
constexpr int kDraws = 20000;

std::map<int, double> shares(const SamplingSettings& settings,
                             const std::vector<float>& logits = kLogits) {
  std::map<int, double> shares;
  for (int i = 0; i < kDraws; ++i) {
    shares[sample_token(logits, settings, static_cast<std::uint64_t>(i))] += 1.0 / kDraws;
  }
  return shares;
}

TEST(Sampling, TemperatureZeroTakesLikeliestToken) {
  for (std::uint64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, position), 1);
  }
}

TEST(Sampling, EqualLogitsPreferSmallerId) {
  const std::vector<float> logits{0.0f, 2.0f, 2.0f};
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 7), 1);
  const auto first = shares({.top_k = 1}, logits);
  EXPECT_EQ(first.size(), 1u);
  EXPECT_TRUE(first.contains(1));
}

TEST(Sampling, DrawsTokensByProbability) {
  const auto found = shares({});
  const double expected[] = {0.1, 0.4, 0.2, 0.3};
  for (int id = 0; id < 4; ++id) EXPECT_NEAR(found.at(id), expected[id], 0.012) << id;
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  const auto sharp = shares({.temperature = 0.5});  // squares: 1, 16, 4 and 9 of 30
  EXPECT_NEAR(sharp.at(1), 16.0 / 30, 0.012);
  EXPECT_NEAR(sharp.at(0), 1.0 / 30, 0.006);
  EXPECT_NEAR(shares({.temperature = 1000}).at(0), 0.25, 0.012);
}

TEST(Sampling, TopKKeepsLikeliestTokens) {
  const auto found = shares({.top_k = 2});
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(found.at(1), 4.0 / 7, 0.012);
  EXPECT_NEAR(found.at(3), 3.0 / 7, 0.012);
  EXPECT_EQ(shares({.top_k = 100}).size(), 4u);
}

TEST(Sampling, TopPKeepsSmallestSetAboveShare) {
  EXPECT_EQ(shares({.top_p = 0.39}).size(), 1u);
  EXPECT_EQ(shares({.top_p = 0.41}).size(), 2u);
  const auto three = shares({.top_p = 0.85});
  EXPECT_EQ(three.size(), 3u);
  EXPECT_FALSE(three.contains(0));
}

TEST(Sampling, TopPAppliesAfterTopK) {
  // Tokens 1 and 3 remain, and the first has 4/7 = 0.571.
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.56}).size(), 1u);
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.58}).size(), 2u);
}

TEST(Sampling, MinPIsRelativeToLikeliestToken) {
  EXPECT_EQ(shares({.min_p = 0.24}).size(), 4u);
  EXPECT_EQ(shares({.min_p = 0.26}).size(), 3u);
  const auto two = shares({.min_p = 0.7});
  EXPECT_NEAR(two.at(1), 4.0 / 7, 0.012);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_EQ(shares({.min_p = 1}).size(), 1u);
  EXPECT_EQ(shares({.temperature = 0.5, .min_p = 0.26}).size(), 2u)
      << "the probabilities are 1, 16, 4 and 9 of 30";
}

TEST(Sampling, RepetitionPenaltyAppliesOncePerToken) {
  const std::vector<float> logits{2.0f, 1.5f, -1.0f, -1.2f};
  const SamplingSettings greedy{.temperature = 0, .repetition_penalty = 1.5};
  const std::vector<std::int32_t> first{0, 0, 0, 0}, both{0, 1, 0};
  EXPECT_EQ(sample_token(logits, greedy, 0), 0);
  EXPECT_EQ(sample_token(logits, greedy, 0, first), 1) << "2 / 1.5 is below 1.5";
  EXPECT_EQ(sample_token(logits, greedy, 0, both), 0) << "1.33 is above 1";
  const std::vector<float> negative{-1.0f, -1.2f};
  EXPECT_EQ(sample_token(negative, greedy, 0, first), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0, first), 0);
}

TEST(Sampling, SeedDeterminesTokens) {
  const auto draw = [](std::uint64_t seed) {
    std::vector<int> tokens;
    for (std::uint64_t i = 0; i < 64; ++i)
      tokens.push_back(sample_token(kLogits, {.seed = seed}, i));
    return tokens;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST(Sampling, SkipsMinusInfinityAndRejectsNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(shares({}, {0.0f, -infinity, 0.0f}).count(1), 0u);
  EXPECT_THROW(sample_token(std::vector<float>{0.0f, NAN}, {}, 0), DataError);
  EXPECT_THROW(sample_token(std::vector<float>{infinity, 0.0f}, {}, 0), DataError);
}

TEST(Sampling, CheckReportsEverySettingOutOfRange) {
  try {
    check({.temperature = -1, .top_k = -2, .top_p = 0, .min_p = 3, .repetition_penalty = 0});
    FAIL();
  } catch (const UsageError& error) {
    const std::string text = error.what();
    for (const char* word :
         {"temperature", "top-k", "top-p", "min-p", "repetition-penalty", "-1", "-2"}) {
      EXPECT_NE(text.find(word), std::string::npos) << word;
    }
  }
  EXPECT_THROW(check({.temperature = NAN}), UsageError);
  EXPECT_THROW(check({.top_p = 1.01}), UsageError);
  EXPECT_NO_THROW(check(SamplingSettings{}));
}

}  // namespace
}  // namespace hybrid_trainer
