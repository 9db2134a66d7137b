#include "src/compare/comparison_result.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

/// Two variants, three seeds, two budgets, a sweep of three values and a target of 2.
class ComparisonResultTest : public ::testing::Test {
 protected:
  ComparisonResultTest() {
    std::filesystem::create_directory(folder_ / "data");
    write_text(folder_ / "spec.json", R"({"data":"data","budgets":[10,20],"seeds":[0,1,2],
      "variants":[{"name":"plain","set":{}},{"name":"muon","set":{"optimizer.name":"muon"}}],
      "sweep":{"optimizer.learning_rate":[0.1,0.2,0.4]},"target_validation_loss":2})");
    spec_ = read_comparison_spec(folder_ / "spec.json");
    runs_ = {runs(0.02, 2.1, 1.9), runs(0.01, 2.0, 1.5)};
  }
  /// Losses after 10 and 20 steps, slightly larger with each seed; 0.2 is the sweep's best rate.
  VariantRuns runs(double more, double after_ten, double after_twenty) {
    VariantRuns variant;
    for (const double rate : {0.1, 0.2, 0.4})
      variant.trials.push_back(outcome({20, 3, rate}, 2 + std::abs(rate - 0.2)));
    for (const std::int64_t seed : {0, 1, 2}) {
      variant.runs.push_back(
          outcome({10, seed, 0.2}, after_ten + more * static_cast<double>(seed)));
      variant.runs.push_back(
          outcome({20, seed, 0.2}, after_twenty + more * static_cast<double>(seed)));
    }
    return variant;
  }
  static RunOutcome outcome(const RunPoint& point, double loss) {
    RunOutcome run;
    run.point = point;
    run.folder = "runs/x/" + point.name();
    run.loss = loss;
    run.steps = point.steps;
    run.tokens = 100 * point.steps;
    run.seconds = static_cast<double>(point.steps);
    run.flops = 1e6 * static_cast<double>(point.steps);
    run.cost = 1.1 * static_cast<double>(point.steps);
    run.predicted_steps = point.steps / 10;
    run.predictions = {4, 2, 1, 1};
    return run;
  }
  static void fail(RunOutcome& run, const char* why, bool diverged = false) {
    run.loss.reset();
    run.failure = why;
    run.diverged = diverged;
  }
  ComparisonResult result() const { return comparison_result(spec_, runs_); }
  TemporaryFolder folder_;
  ComparisonSpec spec_;
  std::vector<VariantRuns> runs_;
};

TEST_F(ComparisonResultTest, ReportsMeansIntervalsAndDifferences) {
  const ComparisonResult found = result();
  const VariantResult& muon = found.variants[1];
  EXPECT_DOUBLE_EQ(muon.loss().interval->mean, 1.51);
  // Standard deviation 0.01, t = 4.30265.
  EXPECT_NEAR(muon.loss().interval->high, 1.51 + 4.30265 * 0.01 / std::sqrt(3), 1e-6);
  EXPECT_NEAR(muon.difference->interval->mean, -0.41, 1e-9);
  // Interval of the pairs, not of the variants: seed by seed -0.40, -0.41, -0.42.
  EXPECT_NEAR(muon.difference->interval->low, -0.41 - 4.30265 * 0.01 / std::sqrt(3), 1e-6);
  EXPECT_EQ(muon.chosen, 0.2);
  EXPECT_EQ(muon.learning_rate, 0.2);
  EXPECT_FALSE(muon.edge_of_sweep);
  EXPECT_FALSE(found.variants[0].difference);
  EXPECT_NE(muon.claim.find("muon ends with a lower validation loss than plain after 20 steps"),
            std::string::npos)
      << muon.claim << muon.why_no_claim;
}

TEST_F(ComparisonResultTest, PaceSetsTimeOfEveryRun) {
  spec_.pace = ComparisonTiming{4, 3};
  for (const double seconds : {2.0, 12.0, 4.0}) {
    runs_[0].pace.push_back(outcome({4, 3, 0.2, 1}, 3));
    runs_[0].pace.back().seconds = seconds;
    runs_[1].pace.push_back(outcome({4, 3, 0.2, 1}, 3));
  }
  fail(runs_[1].pace.back(), "killed");
  const ComparisonResult found = result();
  EXPECT_EQ(found.variants[0].pace->median, 1);
  EXPECT_EQ(found.variants[0].pace->low, 0.5);
  EXPECT_EQ(found.variants[0].pace->high, 3);
  EXPECT_EQ(found.variants[0].budgets[1].seconds.interval->mean, 20) << "steps at the median";
  EXPECT_FALSE(found.variants[1].pace);
  EXPECT_FALSE(found.variants[1].budgets[1].seconds.interval) << "no times without a measured pace";
  EXPECT_NE(found.variants[1].why_no_claim.find("failed"), std::string::npos);
  const json::value text = json::parse(to_json(spec_, found));
  EXPECT_EQ(text.at("variants").at(0).at("seconds_per_step").at("median"), 1);
  EXPECT_TRUE(text.at("variants").at(1).at("seconds_per_step").is_null());
}

TEST_F(ComparisonResultTest, DifferentBudgetsAreComparedByTime) {
  spec_.variants[1].budgets = {5, 10};
  for (RunOutcome& run : runs_[1].runs) {
    run.point.steps /= 2, run.steps /= 2, run.seconds /= 2;
    if (run.point.seed == 2) run.seconds *= 1.1;
  }
  const VariantResult muon = result().variants[1];
  EXPECT_FALSE(muon.difference);
  // Plain reaches 2 only with its larger budget. Muon needs it except with seed 0: 5/20, 10/20.
  EXPECT_DOUBLE_EQ(*muon.time_ratio->values[0], 0.25);
  EXPECT_DOUBLE_EQ(*muon.time_ratio->values[1], 0.5);
  EXPECT_DOUBLE_EQ(*muon.time_ratio->values[2], 0.55);
  EXPECT_NE(muon.claim.find("reaches the target in 0.433"), std::string::npos)
      << muon.claim << muon.why_no_claim;
  spec_.target_loss = 0.1;
  EXPECT_NE(result().variants[1].why_no_claim.find("budgets differ"), std::string::npos);
}

TEST_F(ComparisonResultTest, UsesSmallestBudgetReachingTarget) {
  const ComparisonResult found = result();
  ASSERT_TRUE(found.variants[1].to_target);
  const Measured& seconds = found.variants[1].to_target->seconds;
  EXPECT_EQ(*seconds.values[0], 10) << "2.00 after 10 steps";
  EXPECT_EQ(*seconds.values[1], 20) << "2.01 after 10 steps";
  EXPECT_EQ(*found.variants[1].to_target->flops.values[1], 20e6);
  EXPECT_EQ(found.variants[0].seeds_at_target, 3);
}

TEST_F(ComparisonResultTest, NoTimeToTargetIfOneSeedMisses) {
  runs_[0].runs.back().loss = 2.5;
  const ComparisonResult found = result();
  EXPECT_EQ(found.variants[0].seeds_at_target, 2);
  EXPECT_FALSE(found.variants[0].to_target);
  EXPECT_NE(join(found.warnings).find("with 2 of 3 seeds"), std::string::npos);
}

TEST_F(ComparisonResultTest, FailedRunLeavesNoMean) {
  fail(runs_[1].runs[3], "ended with exit status 1");  // seed 1, 20 steps
  const ComparisonResult found = result();
  const VariantResult& muon = found.variants[1];
  EXPECT_FALSE(muon.loss().interval);
  EXPECT_FALSE(muon.loss().values[1]);
  EXPECT_TRUE(muon.loss().values[2]);
  EXPECT_EQ(muon.claim, "");
  EXPECT_NE(muon.why_no_claim.find("a run of muon failed"), std::string::npos);
  const json::value value = json::parse(to_json(spec_, found));
  const json::value& variant = value.at("variants").at(1);
  EXPECT_TRUE(variant.at("final_validation_loss").at("mean").is_null());
  EXPECT_EQ(variant.at("failed").at(0).at("failure"), "ended with exit status 1");
  EXPECT_TRUE(value.at("claim").is_null());
}

TEST_F(ComparisonResultTest, DivergedTrialCountsAsWorst) {
  fail(runs_[1].trials[2], "the loss is not finite", true);
  EXPECT_FALSE(result().variants[1].edge_of_sweep);
  EXPECT_NE(result().variants[1].claim, "");
  fail(runs_[1].trials[1], "the loss is not finite", true);
  EXPECT_TRUE(result().variants[1].edge_of_sweep) << "0.1 is the only rate left";
  EXPECT_EQ(result().variants[1].claim, "");
}

TEST_F(ComparisonResultTest, MakesNoUnsupportedClaim) {
  const auto why = [&] { return result().variants[1].why_no_claim; };
  const auto runs = runs_;
  runs_[0].trials[2].loss = 1;
  EXPECT_NE(why().find("0.4 of plain is at the edge of its sweep"), std::string::npos) << why();
  runs_ = runs;
  runs_[1].runs[5].loss = 3;  // the difference's interval contains 0
  EXPECT_NE(why().find("may be 0"), std::string::npos) << why();
  runs_ = runs;
  spec_.seeds = {0, 1};
  EXPECT_NE(why().find("at least 3 seeds"), std::string::npos) << why();
  spec_.seeds = {0, 1, 2};
  spec_.variants[0].config.schedule.name = "constant";
  EXPECT_NE(why().find("does not decay"), std::string::npos) << why();
  spec_.variants[0].config.schedule.name = "cosine";
  spec_.variants[1].command = {"run", "{learning_rate}"};
  EXPECT_NE(why().find("has no {seed}"), std::string::npos) << why();
  spec_.variants[1].command = {"run", "{seed}"};
  EXPECT_EQ(why(), "");
  EXPECT_NE(join(result().warnings).find("{learning_rate}"), std::string::npos);
  runs_[1].runs[1].steps = 7;
  EXPECT_NE(why().find("reported 7 steps instead of the requested 20"), std::string::npos) << why();
}

TEST_F(ComparisonResultTest, IdenticalRunsShowNoEffect) {
  runs_[1] = runs_[0];
  for (VariantRuns& variant : runs_)
    for (RunOutcome& run : variant.runs) run.losses = run.point.name();
  EXPECT_NE(result().variants[1].why_no_claim.find("are bit-identical to those of plain"),
            std::string::npos)
      << result().variants[1].why_no_claim;
  runs_[1].runs[3].losses = "others";
  EXPECT_EQ(result().variants[1].why_no_claim.find("bit-identical"), std::string::npos);
}

TEST_F(ComparisonResultTest, CorrectsIntervalsForNumberOfClaims) {
  // Differences -0.09, -0.10, -0.17: the 95 % interval excludes 0 with one claim, not with three.
  runs_[1].runs[1].loss = 1.81, runs_[1].runs[3].loss = 1.82, runs_[1].runs[5].loss = 1.77;
  EXPECT_NE(result().variants[1].claim, "");
  for (const char* name : {"third", "fourth"}) {
    spec_.variants.push_back(spec_.variants[1]);
    spec_.variants.back().name = name;
    runs_.push_back(runs_[1]);
  }
  EXPECT_EQ(result().variants[1].claim, "");
  EXPECT_NE(result().variants[1].why_no_claim.find(
                "after dividing the 5 % risk of error among 3 differences"),
            std::string::npos)
      << "its uncorrected interval excludes 0: " << result().variants[1].why_no_claim;
}

TEST_F(ComparisonResultTest, SumsPredictionsOfLargestBudget) {
  const json::value value = json::parse(to_json(spec_, result()));
  const json::value& use = value.at("variants").at(1).at("predictions");
  EXPECT_EQ(use.at("made").as_int64(), 12);
  EXPECT_DOUBLE_EQ(use.at("acceptance_rate").as_double(), 0.5);
  EXPECT_DOUBLE_EQ(use.at("predicted_share").as_double(), 0.1);
  EXPECT_NEAR(use.at("charged_cost_overhead").as_double(), 0.1, 1e-12);
  EXPECT_EQ(value.at("sweep_seed").as_int64(), 3);
  EXPECT_EQ(value.at("variants").at(0).at("sweep").at("trials").as_array().size(), 3u);
}

TEST_F(ComparisonResultTest, SingleSeedHasNoInterval) {
  spec_.seeds = {0};
  const json::value value = json::parse(to_json(spec_, result()));
  const json::value& loss = value.at("variants").at(0).at("final_validation_loss");
  EXPECT_DOUBLE_EQ(loss.at("mean").to_number<double>(), 1.9);
  EXPECT_TRUE(loss.at("low").is_null());
}

}  // namespace
}  // namespace hybrid_trainer
