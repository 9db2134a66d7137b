#include "src/compare/comparison_spec.h"
#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class ComparisonSpecTest : public ::testing::Test {
 protected:
  ComparisonSpecTest() { std::filesystem::create_directory(folder_ / "data"); }
  ComparisonSpec read(const std::string& text) const {
    write_text(folder_ / "spec.json", text);
    return read_comparison_spec(folder_ / "spec.json");
  }
  /// The problems of a spec that consists of these parts and the required ones.
  std::string problems(const std::string& more,
                       const std::string& variants = R"([{"name":"a","set":{}}])",
                       const std::string& seeds = "[0]") const {
    try {
      read(R"({"data":"data","variants":)" + variants + R"(,"seeds":)" + seeds +
           (more.empty() ? "" : "," + more) + "}");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  }
  void expect(const std::string& found, const std::vector<std::string>& words) const {
    for (const std::string& word : words)
      EXPECT_NE(found.find(word), std::string::npos) << "no \"" << word << "\" in " << found;
  }
  TemporaryFolder folder_;
};

TEST_F(ComparisonSpecTest, ReadsEachExample) {
  const std::filesystem::path examples(HT_SOURCE_DIR "/examples/compare");
  for (const auto& file : std::filesystem::directory_iterator(examples)) {
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::regex data(R"("data": "[^"]*")");
    EXPECT_NO_THROW(read(std::regex_replace(text.str(), data, R"("data": "data")"))) << file.path();
  }
}

TEST_F(ComparisonSpecTest, ReadsFieldsOfFile) {
  const ComparisonSpec spec = read(R"({"data":"data","base":{"model":{"layers":3}},
    "budgets":[60,100],"variants":[{"name":"plain","set":{"optimizer.name":"muon"}},
      {"name":"torch","command":["run","{data}","{seed}/{seed}","{learning_rate}","{steps}","{output}","{x}"],
       "sweep":{"optimizer.learning_rate":[0.5,0.25]}}],
    "seeds":[0,1,3],"sweep":{"optimizer.learning_rate":[4e-3,1e-3]},"target_validation_loss":1.9})");
  ASSERT_EQ(spec.variants.size(), 2u);
  EXPECT_EQ(spec.data, folder_ / "data");
  EXPECT_EQ(spec.variants[0].config.model.layers, 3);
  EXPECT_EQ(spec.variants[0].sweep, (std::vector<double>{1e-3, 4e-3})) << "in order";
  EXPECT_EQ(spec.sweep_seed(), 2) << "of a run that is not measured";
  EXPECT_EQ(spec.target_loss, 1.9);
  const HybridTrainerConfig config = spec.config_of(spec.variants[0], {60, 3, 4e-3});
  EXPECT_EQ(config.optimizer.name, "muon");
  EXPECT_EQ(config.optimizer.learning_rate, 4e-3);
  EXPECT_EQ(config.training.seed, 3);
  EXPECT_EQ(config.training.steps, 60);
  EXPECT_EQ(spec.command_of(spec.variants[1], {60, 3, 0.25}, "/out"),
            (std::vector<std::string>{"run", (folder_ / "data").string(), "3/3", "0.25", "60",
                                      "/out", "{x}"}));
  EXPECT_EQ((RunPoint{60, 3, 1e-3}.name()), "60-steps-seed-3-at-0.001");
}

TEST_F(ComparisonSpecTest, BaseOverridesPreset) {
  const ComparisonSpec spec = read(R"({"data":"data","preset":"tiny","base":{"model":{"layers":3}},
    "budgets":[5],"variants":[{"name":"a","set":{}}],"seeds":[0]})");
  EXPECT_EQ(spec.variants[0].config.model.layers, 3);
  EXPECT_EQ(spec.variants[0].config.model.width, preset_config("tiny").model.width);
  expect(problems(R"("preset":"tinny")"), {"preset: there is no preset \"tinny\"", "tiny?"});
}

TEST_F(ComparisonSpecTest, CommonNamesSuggestFullKeys) {
  expect(problems("", R"([{"name":"a","set":{"lr":1e-3,"batch_size":4}}])"),
         {"did you mean optimizer.learning_rate?", "did you mean data.batch_size?"});
  expect(problems("", R"([{"name":"a","set":{"steps":5}}])"), {"did you mean training.steps?"});
  expect(problems(R"("sweep":{"lr":[1e-3,2e-3]})"), {"did you mean optimizer.learning_rate?"});
}

TEST_F(ComparisonSpecTest, DefaultBudgetIsStepsOfBase) {
  EXPECT_EQ(read(R"({"data":"data","base":{"training":{"steps":7}},"seeds":[0],
    "variants":[{"name":"a","set":{}}]})")
                .budgets,
            std::vector<std::int64_t>{7});
}

TEST_F(ComparisonSpecTest, RejectsInvalidFiles) {
  EXPECT_THROW(read("{\"data\": "), ConfigError);
  EXPECT_THROW(read("[1]"), ConfigError);
  EXPECT_THROW(read("{\"data\":\"" + std::string(2 << 20, 'x') + "\"}"), ConfigError);
  EXPECT_THROW(read_comparison_spec(folder_ / "nowhere.json"), MissingInput);
  EXPECT_THROW(read(R"({"data":"nowhere","variants":[{"name":"a","set":{}}],"seeds":[0]})"),
               MissingInput);
  expect(problems("\"seeds\":[1]"), {"seeds", "duplicate"});
}

TEST_F(ComparisonSpecTest, ReportsEachProblemWithLocation) {
  EXPECT_EQ(problems(""), "none");
  expect(problems("\"sweeep\":{}"), {"sweeep", "did you mean sweep?"});
  expect(problems("\n\"base\":{\n\"training\":{\"stps\":3}}"),
         {"spec.json:3: base.training.stps", "did you mean steps?"});
  expect(problems("\"base\":{\"model\":{\"layers\":\"x\"}}"),
         {"base.model.layers", "whole number"});
  expect(problems("\"base\":3"), {"base: got 3"});
  expect(problems("\"base\":{\"model\":{\"width\":30,\"heads\":4}}"), {"variants[0]", "heads"});
  expect(problems("", "[]"), {"variants"});
  expect(problems("", "[3]"), {"variants[0]: got 3"});
  expect(problems("", R"([{"set":{}}])"), {"variants[0].name: is missing"});
  expect(problems("", R"([{"name":"a"}])"), {"neither", "command"});
  expect(problems("", R"([{"name":"a","set":{},"command":["x"]}])"), {"both", "command"});
  expect(problems("", R"([{"name":"a","st":{}}])"), {"variants[0].st", "did you mean set?"});
  expect(problems("", R"([{"name":"a","set":{}},{"name":"a","set":{}}])"),
         {"name of another variant"});
  for (const char* name : {"..", "a/b", "-a", "ü", "a b"})
    expect(problems("", std::string(R"([{"name":")") + name + R"(","set":{}}])"),
           {"want a folder name"});
  expect(problems("", R"([{"name":"a","set":{"optimizer.nme":"x"}}])"),
         {"variants[0].set: optimizer.nme", "did you mean name?"});
  expect(problems("", R"([{"name":"a","set":{"training.seed":1}}])"), {"training.seed", "seeds"});
  expect(problems("", R"([{"name":"a","command":[]}])"), {"variants[0].command"});
  expect(problems("", R"([{"name":"a","command":["x",3]}])"), {"variants[0].command"});
  expect(problems("", R"([{"name":"a","set":{}}])", "[]"), {"seeds", "at least one"});
  expect(problems("", R"([{"name":"a","set":{}}])", "[1,1]"), {"seeds", "twice"});
  expect(problems("", R"([{"name":"a","set":{}}])", "[-1]"), {"seeds", "-1"});
  expect(problems("\"budgets\":[3,3]"), {"budgets", "increasing"});
  expect(problems("\"budgets\":[0]"), {"budgets", "at least 1"});
  expect(problems("", R"([{"name":"a","set":{},"budgets":[3,2]}])"),
         {"variants[0].budgets: got 2 after 3"});
  expect(problems("\"pace\":3"), {"pace: got 3"});
  expect(problems("\"ranks\":0"), {"ranks: got 0", "from 1 to 64"});
  expect(problems("\"ranks\":\"4\""), {"ranks: got \"4\""});
  expect(problems("\"ranks\":2"), {"variants[0]", "gradient_accumulation.micro_batches: got 1"});
  expect(problems("", R"([{"name":"a","set":{"phases.method":"asynchronous_gradients"}}])"),
         {"variants[0]", "phases.method: got asynchronous_gradients, but there is only one rank"});
  expect(problems("\"pace\":{\"steps\":0}"), {"pace.steps: got 0", "pace.rounds: is missing"});
  expect(problems("\"target_validation_loss\":-1"), {"target_validation_loss", "-1"});
}

/// Their losses are computed over different tokens.
TEST_F(ComparisonSpecTest, RejectsIncomparableObjectives) {
  const std::string encoder = R"("base":{"objective":"masked","model":{"family":"semiseparable",
    "bidirectional":true}})";
  EXPECT_EQ(problems(encoder, R"([{"name":"t","set":{}},{"name":"b","set":{"model.mixers":"b"}}])"),
            "none");
  expect(problems(encoder, R"([{"name":"m","command":["x"]},{"name":"t","set":{}},
    {"name":"next","set":{"objective":"next_token","model.bidirectional":false}}])"),
         {"variants[2]: objective: got next_token, but t has masked: their losses cannot be "
          "compared"});
  expect(problems(encoder, R"([{"name":"t","set":{}},{"name":"u","set":{"mask_share":0.3}}])"),
         {"variants[1]: mask_share: got 0.3, but t has 0.15: their losses cannot be compared"});
}

TEST_F(ComparisonSpecTest, ReportsEachSweepProblem) {
  const auto sweep = [](const std::string& text) { return "\"sweep\":" + text; };
  expect(problems(sweep(R"({"optimizer.learning_rate":[]})")), {"at least one number"});
  expect(problems(sweep(R"({"optimizer.learning_rate":[1e-3,1e-3]})")), {"twice"});
  expect(problems(sweep(R"({"optimizer.learning_rate":["x"]})")), {"want numbers"});
  expect(problems(sweep(R"({"optimizer.lr":[1]})")), {"optimizer.lr", "unknown key"});
  expect(problems(sweep(R"({"optimizer.learning_rate":[-1]})")), {"optimizer.learning_rate", "-1"});
  expect(problems(sweep(R"({"optimizer.learning_rate":[1],"optimizer.momentum":[0.9]})")),
         {"sweeps one key"});
  expect(problems(sweep(R"({"training.steps":[5]})")), {"\"budgets\" and \"seeds\""});
  expect(
      problems(
          sweep(R"({"optimizer.learning_rate":[1e-3,2e-3]})"),
          R"([{"name":"a","set":{}},{"name":"b","set":{},"sweep":{"optimizer.learning_rate":[1e-3]}}])"),
      {"got 1 values, want 2"});
  expect(problems(sweep(R"({"optimizer.momentum":[0.9]})"), R"([{"name":"a","command":["x"]}])"),
         {"only optimizer.learning_rate"});
  expect(problems(sweep(R"({"optimizer.learning_rate":[1e-3]})"),
                  R"([{"name":"a","set":{"optimizer.learning_rate":1}}])"),
         {"is swept"});
  const std::string own = R"(,"sweep":{"optimizer.learning_rate":[1e-3]}})";
  const std::string a = R"({"name":"a","set":{})", b = R"({"name":"b","set":{})";
  EXPECT_EQ(problems("", "[" + a + own + "," + b + own + "]"), "none")
      << "each variant has its own";
  expect(problems("", "[" + a + own + "," + b + "}]"), {"variants[1].sweep: got 0 values, want 1"});
  expect(problems("", "[" + a + "}," + b + own + "]"),
         {"variants[1].sweep", "first variant has none"});
}

TEST_F(ComparisonSpecTest, AllowsAdditionsButNoChanges) {
  const auto text = [&](const std::string& variants, const std::string& rest) {
    return read(R"({"data":"data","variants":[{"name":"a","set":{}})" + variants + "]," + rest +
                "}")
        .text;
  };
  const std::string before = text("", R"("seeds":[0,1],"budgets":[5])");
  EXPECT_NO_THROW(check_same_comparison(before, before));
  EXPECT_NO_THROW(check_same_comparison(
      before, text(R"(,{"name":"b","set":{}})", R"("seeds":[2,1,0],"budgets":[3,5])")));
  const auto refused = [&](const std::string& now) {
    try {
      check_same_comparison(before, now);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  expect(refused(text("", R"("seeds":[0],"budgets":[5])")), {"seeds: 1 was", "--output"});
  expect(refused(text("", R"("seeds":[0,1],"budgets":[5],"target_validation_loss":2)")),
         {"target_validation_loss: was null, is now 2"});
  expect(refused(text("", R"("seeds":[0,1],"budgets":[5],"base":{"training":{"threads":1}})")),
         {"base"});
}

}  // namespace
}  // namespace hybrid_trainer
