#include "src/compare/comparison.h"

#include <gtest/gtest.h>

#include "src/compare/comparison_result.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// Two variants of three seeds; the second is better by about 0.1 each time.
std::string table_of(const std::string& target, const std::string& of_muon = "") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_text(folder / "spec.json", R"({"data":"data","base":{"training":{"steps":20}},
    "variants":[{"name":"plain","set":{}},{"name":"muon","set":{"optimizer.name":"muon"})" +
                                       of_muon + R"(}],"seeds":[0,1,2],
    "sweep":{"optimizer.learning_rate":[0.1,0.2,0.3]})" +
                                       target + "}");
  const ComparisonSpec spec = read_comparison_spec(folder / "spec.json");
  std::vector<VariantRuns> runs(2);
  for (const std::size_t variant : {0u, 1u}) {
    const auto add = [&](std::vector<RunOutcome>& outcomes, const RunPoint& point, double extra) {
      RunOutcome& run = outcomes.emplace_back();
      run.point = point;
      run.loss = 1.25 - 0.1 * static_cast<double>(variant) +
                 0.01 * static_cast<double>(point.seed) + extra;
      run.tokens = 2000, run.seconds = 3, run.steps = 20;
    };
    const std::int64_t steps = spec.variants[variant].budgets.back();
    for (const double rate : {0.1, 0.2, 0.3})
      add(runs[variant].trials, {steps, 3, rate}, rate == 0.2 ? 0 : 1);
    for (const std::int64_t seed : {0, 1, 2}) add(runs[variant].runs, {steps, seed, 0.2}, 0);
  }
  return markdown_table(spec, comparison_result(spec, runs));
}

TEST(ComparisonTable, ListsVariantsAndClaims) {
  const std::string table = table_of("");
  for (const char* line :
       {"| variant | learning rate | validation loss after 20 steps |",
        "| plain | 0.2 | 1.2600 (1.2352 to 1.2848) | – | 3.0 s (3.0 s to 3.0 s) |",
        "| muon | 0.2 | 1.1600 (1.1352 to 1.1848) | -0.1000 (-0.1000 to -0.1000) |", "- muon "})
    EXPECT_NE(table.find(line), std::string::npos) << line << "\nin\n" << table;
}

TEST(ComparisonTable, ShowsStepsIfTheyDiffer) {
  const std::string table = table_of("", R"(,"budgets":[40])");
  EXPECT_NE(
      table.find(
          "| variant | learning rate | validation loss | steps | difference from the first |"),
      std::string::npos)
      << table;
  EXPECT_NE(table.find("(1.1352 to 1.1848) | 40 | – |"), std::string::npos) << table;
}

TEST(ComparisonTable, ShowsTimeAndTokensToTarget) {
  const std::string table = table_of(R"(,"target_validation_loss":1.2)");
  EXPECT_NE(table.find("| seconds to 1.2 | tokens to target | time relative to the first |"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("3.0 s (3.0 s to 3.0 s) | 2.00k (2.00k to 2.00k) |"), std::string::npos)
      << table;
  EXPECT_NE(table.find("| – | – | – |"), std::string::npos) << "plain does not reach it\n" << table;
}

}  // namespace
}  // namespace hybrid_trainer
