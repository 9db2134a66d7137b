#include "hybrid_trainer/generation/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace hybrid_trainer {
namespace {

using TokenIds = std::vector<std::int32_t>;

/// The tokens, of ten, that may follow the text.
std::set<int> allowed(const TokenConstraints& rules, const TokenIds& text) {
  std::vector<float> scores(10, 1.5F);
  rules.apply(scores, text);
  std::set<int> ids;
  for (int id = 0; id < 10; ++id)
    if (!std::isinf(scores[static_cast<std::size_t>(id)])) ids.insert(id);
  return ids;
}

std::set<int> all_but(const std::set<int>& forbidden) {
  std::set<int> ids;
  for (int id = 0; id < 10; ++id)
    if (!forbidden.contains(id)) ids.insert(id);
  return ids;
}

TEST(TokenConstraints, ForbidRepeatedNgrams) {
  EXPECT_EQ(allowed({.no_repeat_ngram = 2}, {4, 5, 4}), all_but({5}));
  EXPECT_EQ(allowed({.no_repeat_ngram = 2}, {4, 5, 4, 6, 4}), all_but({5, 6}));
  EXPECT_EQ(allowed({.no_repeat_ngram = 3}, {1, 2, 3, 1, 2}), all_but({3}));
  EXPECT_EQ(allowed({.no_repeat_ngram = 3}, {1, 2}), all_but({})) << "too short to repeat";
  EXPECT_EQ(allowed({.no_repeat_ngram = 1}, {4, 5, 4}), all_but({4, 5}));
}

TEST(TokenConstraints, MinimumLengthForbidsEndTokens) {
  const TokenConstraints rules{.end_tokens = {2, 7}, .least = 3};
  EXPECT_EQ(allowed(rules, {1, 1}), all_but({2, 7}));
  EXPECT_EQ(allowed(rules, {1, 1, 1}), all_but({}));
}

TEST(TokenConstraints, SuppressionAndMinimumCountNewTokens) {
  const TokenConstraints rules{.end_tokens = {2},
                               .suppressed = {7},
                               .suppressed_first = {3},
                               .begun = 2,
                               .min_new_tokens = 1};
  EXPECT_EQ(allowed(rules, {1, 1}), all_but({2, 3, 7}));
  EXPECT_EQ(allowed(rules, {1, 1, 4}), all_but({7}));
}

TEST(TokenConstraints, RepetitionPenaltyScalesScores) {
  std::vector<float> scores{3, -3, 3};
  TokenConstraints{.repetition_penalty = 2}.apply(scores, TokenIds{0, 1, 0});
  EXPECT_EQ(scores, (std::vector<float>{1.5F, -6, 3}));
}

TEST(TokenConstraints, ForbidTokensBeyondVocabulary) {
  EXPECT_EQ(allowed({.words = 3}, {1}), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(allowed({.words = 30}, {1}), all_but({}));
}

TEST(TokenConstraints, FirstAndLastTokensAreForced) {
  const TokenConstraints rules{.first = 0, .last = 2, .longest = 5};
  EXPECT_EQ(allowed(rules, {2}), (std::set<int>{0}));
  EXPECT_EQ(allowed(rules, {2, 0}), all_but({}));
  EXPECT_EQ(allowed(rules, {2, 0, 4, 4}), (std::set<int>{2}));
  std::vector<float> scores(10, 1.5F);
  rules.apply(scores, TokenIds{2});
  EXPECT_EQ(scores[0], 0);
}

}  // namespace
}  // namespace hybrid_trainer
