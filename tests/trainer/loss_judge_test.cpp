#include "src/trainer/trainer_checkpoints.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

HybridTrainerConfig judging(std::int64_t keep_best, std::int64_t patience, double least = 0) {
  HybridTrainerConfig config;
  config.checkpoint.keep_best = keep_best;
  config.training.patience = patience;
  config.training.min_improvement = least;
  return config;
}

using Best = std::vector<BestCheckpoint>;

TEST(LossJudge, KeepsLowestAndEarlierOnTies) {
  LossJudge judge(judging(2, 0));
  EXPECT_TRUE(judge.judge(10, 3.0));
  EXPECT_TRUE(judge.judge(20, 2.0));
  EXPECT_FALSE(judge.judge(30, 3.0)) << "equal to the second best, but later";
  EXPECT_TRUE(judge.judge(40, 2.5));
  EXPECT_FALSE(judge.judge(50, 2.6));
  EXPECT_EQ(judge.best(), (Best{{20, 2.0}, {40, 2.5}}));
  judge.forget(20);
  EXPECT_EQ(judge.best(), (Best{{40, 2.5}}));
}

TEST(LossJudge, WithoutSlotsKeepsNothing) {
  LossJudge judge(judging(0, 2));
  EXPECT_FALSE(judge.judge(10, 1.0));
  EXPECT_TRUE(judge.best().empty());
  EXPECT_TRUE(judge.kept().empty());
}

TEST(LossJudge, RunsOutOfPatienceWithoutImprovement) {
  LossJudge judge(judging(0, 2, 0.5));
  judge.judge(10, 3.0);
  judge.judge(20, 2.6);
  EXPECT_FALSE(judge.is_patience_exhausted());
  judge.judge(30, 2.4);
  EXPECT_FALSE(judge.is_patience_exhausted()) << "lower by 0.6 than the last improvement";
  EXPECT_EQ(judge.improved_at(), 30);
  judge.judge(40, 2.0);
  judge.judge(50, 1.9);
  EXPECT_TRUE(judge.is_patience_exhausted());
  EXPECT_EQ(judge.improved_at(), 30);
}

TEST(LossJudge, ResumesFromSavedState) {
  LossJudge judge(judging(2, 3, 0.1));
  judge.judge(10, 3.0);
  judge.judge(20, 2.0);
  judge.remember({20});
  judge.judge(30, 1.95);
  judge.evaluates(true, true);
  State state;
  judge.save(state);
  LossJudge again(judging(2, 3, 0.1));
  again.judge(5, 0.5);  // a step that is discarded
  again.load(state);
  EXPECT_EQ(again.best(), judge.best());
  EXPECT_EQ(again.kept(), judge.kept());
  EXPECT_EQ(again.improved_at(), 20);
  again.judge(40, 2.0);
  EXPECT_FALSE(again.is_patience_exhausted());
  again.judge(50, 2.0);
  EXPECT_TRUE(again.is_patience_exhausted()) << "the evaluation of step 30 must count";
  EXPECT_TRUE(again.evaluates(false, false)) << "an evaluation was due";
  EXPECT_EQ(best_in(state), (BestCheckpoint{30, 1.95}));
  LossJudge fewer(judging(1, 0));
  fewer.load(state);
  EXPECT_EQ(fewer.best(), (Best{{30, 1.95}}));
  fewer.load({});
  EXPECT_TRUE(fewer.best().empty()) << "a state of an earlier version has no best";
  EXPECT_EQ(best_in({}), std::nullopt);
}

TEST(LossJudge, KeepsPastBestForRollbackTargets) {
  LossJudge judge(judging(1, 0));
  judge.judge(10, 3.0);
  judge.remember({15});
  judge.judge(20, 2.0);
  EXPECT_EQ(judge.kept(), (std::vector<std::int64_t>{20, 10}));
  judge.remember({15, 25});
  EXPECT_EQ(judge.kept(), (std::vector<std::int64_t>{20, 10, 20}));
  judge.remember({25, 35});
  EXPECT_EQ(judge.kept(), (std::vector<std::int64_t>{20, 20, 20}))
      << "the run can no longer roll back to 15";
  EXPECT_FALSE(judge.keep_only({35, 25, 20}));
  EXPECT_TRUE(judge.keep_only({35, 25}));
  EXPECT_TRUE(judge.kept().empty());
}

TEST(LossJudge, DefersDueEvaluationOfPredictedWeights) {
  LossJudge judge(judging(1, 0));
  EXPECT_FALSE(judge.evaluates(true, true));
  EXPECT_FALSE(judge.evaluates(false, true));
  EXPECT_TRUE(judge.evaluates(false, false));
  EXPECT_FALSE(judge.evaluates(false, false));
  EXPECT_TRUE(judge.evaluates(true, false));
  LossJudge off(judging(0, 0));
  EXPECT_TRUE(off.evaluates(true, true)) << "the loss is not judged";
  EXPECT_FALSE(off.evaluates(false, false));
}

}  // namespace
}  // namespace hybrid_trainer
