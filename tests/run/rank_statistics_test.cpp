#include "src/run/rank_statistics.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

using Values = std::vector<double>;

// Expected values: scipy 1.17.1 (rankdata, pearsonr, spearmanr, binomtest) and scikit-learn 1.9.1
// (roc_auc_score, average_precision_score).

TEST(RankStatistics, EqualValuesHaveTheMeanOfTheirRanks) {
  EXPECT_EQ(mean_ranks(Values{0.5, 2, 2, -1, 3.5, 2, 0.25, 7}), (Values{3, 5, 5, 1, 7, 5, 2, 8}));
}

TEST(RankStatistics, CorrelationsAreThoseOfScipy) {
  const Values a{0.5, 2, 2, -1, 3.5, 2, 0.25, 7}, b{1, 3, 2, 0, 2, 5, -2, 4};
  EXPECT_NEAR(pearson_correlation(a, b).value(), 0.6443955905018044, 1e-14);
  EXPECT_NEAR(spearman_correlation(a, b).value(), 0.7608650751944147, 1e-14);
}

TEST(RankStatistics, ConstantsHaveNoCorrelation) {
  const Values constant{0.1, 0.1, 0.1}, other{1, 2, 4};
  EXPECT_FALSE(pearson_correlation(constant, other));
  EXPECT_FALSE(spearman_correlation(other, constant));
}

TEST(RankStatistics, RankingMeasuresAreThoseOfScikitLearn) {
  const Values scores{0.9, 0.4, 0.4, 0.35, 0.8, 0.1, 0.4, -2};
  const std::vector<bool> is_positive{true, false, true, true, false, false, false, true};
  EXPECT_NEAR(area_under_roc(scores, is_positive).value(), 0.4375, 1e-15);
  EXPECT_NEAR(average_precision(scores, is_positive).value(), 0.6, 1e-15);
}

TEST(RankStatistics, RankingMeasuresNeedBothKindsOfExamples) {
  const Values scores{1, 2};
  EXPECT_FALSE(area_under_roc(scores, {true, true}));
  EXPECT_FALSE(area_under_roc(scores, {false, false}));
  EXPECT_FALSE(average_precision(scores, {false, false}));
  EXPECT_EQ(average_precision(scores, {true, true}), 1);
}

TEST(RankStatistics, IntervalsAreWilsons) {
  const ShareInterval most = wilson_interval(7, 10);
  EXPECT_NEAR(most.low, 0.39677814746114526, 1e-9);
  EXPECT_NEAR(most.high, 0.892208732593699, 1e-9);
  EXPECT_EQ(wilson_interval(0, 5).low, 0);
  EXPECT_NEAR(wilson_interval(0, 5).high, 0.43448246478317476, 1e-9);
  EXPECT_NEAR(wilson_interval(5, 5).low, 0.5655175352168251, 1e-9);
  EXPECT_EQ(wilson_interval(5, 5).high, 1);
}

}  // namespace
}  // namespace hybrid_trainer
