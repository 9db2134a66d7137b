#include "src/compare/comparison.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

TEST(ComparisonReport, ContainsResultsCurvesAndSpecInOneFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_text(folder / "spec.json", R"({"data":"data","base":{"training":{"steps":20}},"seeds":[0,1],
    "variants":[{"name":"plain","set":{}},{"name":"torch","command":["run","<b>&{seed}"]}],
    "sweep":{"optimizer.learning_rate":[0.1,0.2]},"target_validation_loss":1.5})");
  const ComparisonSpec spec = read_comparison_spec(folder / "spec.json");
  std::vector<VariantRuns> runs(2);
  for (const std::size_t variant : {0u, 1u}) {
    const auto add = [&](std::vector<RunOutcome>& outcomes, const RunPoint& point) {
      RunOutcome& run = outcomes.emplace_back();
      run.point = point;
      run.folder = "runs/" + spec.variants[variant].name + "/" + point.name();
      run.loss =
          1.25 + 0.125 * static_cast<double>(variant) + 0.01 * static_cast<double>(point.seed);
      run.tokens = 2000, run.seconds = 3, run.steps = 20;
    };
    for (const double rate : {0.1, 0.2}) add(runs[variant].trials, {20, 2, rate});
    for (const std::int64_t seed : {0, 1}) add(runs[variant].runs, {20, seed, 0.1});
  }
  runs[1].trials[1].loss.reset();
  runs[1].trials[1].failure = "killed by signal 9 (Killed)";
  const std::filesystem::path told = folder / runs[1].runs[0].folder;
  std::filesystem::create_directories(told);
  write_text(told / "stdout.txt", R"({"step":10,"tokens":1000,"seconds":1,"validation_loss":1.75})"
                                  "\n"
                                  R"({"step":20,"tokens":2000,"seconds":3,"validation_loss":1.375})"
                                  "\n");
  write_comparison_report(folder.path(), spec, comparison_result(spec, runs));
  const std::string page = read_text(folder / "report.html");
  for (const char* part :
       {"1.2550", "edge of its sweep", "killed by signal 9", "No claim about torch",
        "optimizer.learning_rate", "&lt;b&gt;&amp;{seed}", "Student", "20-steps-seed-1-at-0.1",
        "seconds of training", "hybrid 0."}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"?(https?:|//)")))
      << "needs no network";
  const auto count = [&](const std::string& what) {
    const std::regex pattern(what);
    return std::distance(std::sregex_iterator(page.begin(), page.end(), pattern), {});
  };
  EXPECT_EQ(count("<svg "), 3) << "a sweep, losses over tokens and over seconds";
  EXPECT_EQ(count("<svg "), count("</svg>"));
  EXPECT_EQ(count("<circle"), 3 + 4 + 4);
  EXPECT_EQ(count("<path class=\"line\" d=\"M[0-9. ]+L"), 2 + 1)
      << "only the sweep of plain has a line";
}

}  // namespace
}  // namespace hybrid_trainer
