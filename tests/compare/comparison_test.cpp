#include "src/compare/comparison.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <csignal>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "src/files/config_fields.h"
#include "src/run/run_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// Imitates another trainer: prints losses that grow with the rate's distance from 0.2.
constexpr const char* kProgram = R"(import json, sys
data, seed, rate, steps, output = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
open(output + "/seen", "w").write(data)
print("loading")
for step in (steps // 2, steps):
    print(json.dumps({"step": step, "tokens": 64 * step, "seconds": 0.5 * step, "validation_loss": 3 + abs(rate - 0.2) + 0.01 * seed - 0.001 * step}))
)";

class ComparisonTest : public ::testing::Test {
 protected:
  ComparisonTest() {
    prepare_tiny_data(folder_ / "data");
    write_text(folder_ / "train.py", kProgram);
  }
  std::string base() const {
    HybridTrainerConfig config = tiny_config();
    config.checkpoint.every_steps = 4;
    config.training.steps = steps_;
    return config_json(config);
  }
  static std::string variants(const std::string& more = "") {
    return R"([{"name":"adamw","set":{"phases.max_predict_steps":0}})" + more + "]";
  }
  static constexpr const char* kTorch =
      R"(,{"name":"torch","command":["python3","train.py","{data}","{seed}","{learning_rate}","{steps}","{output}"]})";
  json::value compare(const std::string& variants, const std::string& rest, bool resume = false) {
    write_text(folder_ / "spec.json",
               R"({"data":"data","base":)" + base() + R"(,"variants":)" + variants + rest + "}");
    std::ostringstream console;
    end_ = run_comparison({folder_ / "spec.json", folder_ / "out", resume, "test"}, console);
    console_ = console.str();
    return end_.interrupted ? json::value() : json::parse(read_text(folder_ / "out/result.json"));
  }
  TemporaryFolder folder_;
  std::int64_t steps_ = 16;
  ComparisonOutcome end_;
  std::string console_;
};

TEST_F(ComparisonTest, RunsAllSeedsAndResumesWithMore) {
  const std::string rest =
      R"(,"seeds":[0,1],"sweep":{"optimizer.learning_rate":[0.001,0.01,0.1]},"target_validation_loss":0.1)";
  const json::value found = compare(
      variants(R"(,{"name":"linear","set":{"phases.skip_backward.predictor":"linear"}})"), rest);
  EXPECT_EQ(found.at("variants").as_array().size(), 2u);
  for (const json::value& variant : found.at("variants").as_array()) {
    const json::value& loss = variant.at("final_validation_loss");
    EXPECT_EQ(loss.at("values").as_array().size(), 2u);
    EXPECT_LE(loss.at("low").to_number<double>(), loss.at("mean").to_number<double>());
    EXPECT_EQ(variant.at("sweep").at("trials").as_array().size(), 3u);
    EXPECT_TRUE(variant.at("seconds_to_target").is_null());
    EXPECT_EQ(variant.at("seeds_at_target"), 0);
    EXPECT_GT(variant.at("budgets").at(0).at("flops").at("mean").to_number<double>(), 0);
  }
  EXPECT_EQ(found.at("sweep_seed"), 2);
  EXPECT_GT(found.at("variants").at(1).at("predictions").at("made").as_int64(), 0);
  EXPECT_EQ(
      found.at("variants").at(0).at("predictions").at("charged_cost_overhead").to_number<double>(),
      0);
  EXPECT_NE(console_.find("run 10/10  linear  16 steps  seed 1"), std::string::npos) << console_;
  EXPECT_TRUE(fs::exists(folder_ / "out/report.html"));

  const std::string run = found.at("variants").at(0).at("runs").at(0).at("run").as_string().c_str();
  const fs::path summary = folder_ / ("out/" + run + "/summary.json");
  const auto written = fs::last_write_time(summary);
  const json::value more = compare(
      variants(R"(,{"name":"linear","set":{"phases.skip_backward.predictor":"linear"}})" +
               std::string(kTorch)),
      R"(,"seeds":[0,1],"sweep":{"optimizer.learning_rate":[0.001,0.01,0.1]},"target_validation_loss":0.1)",
      true);
  EXPECT_EQ(fs::last_write_time(summary), written) << "a finished run was repeated";
  EXPECT_EQ(more.at("variants").at(0), found.at("variants").at(0));
  EXPECT_EQ(more.at("variants").at(2).at("learning_rate"), 0.1);
  EXPECT_EQ(more.at("variants").at(2).at("edge_of_sweep"), true);
  EXPECT_THROW(compare(variants(), rest, true), ConfigError) << "a variant was removed";
  EXPECT_THROW(compare(variants(), rest), CannotCreate) << "without --resume";
}

TEST_F(ComparisonTest, MeasuresPaceAlternatelyAfterRuns) {
  const std::string rest = R"(,"seeds":[0],"sweep":{"optimizer.learning_rate":[0.1,0.2,0.3]})";
  compare(variants(kTorch), rest);
  const json::value found =
      compare(variants(kTorch), rest + R"(,"pace":{"steps":6,"rounds":2})", true);
  const std::size_t first = console_.find("run 9/12  adamw  6 steps"),
                    second = console_.find("run 10/12  torch  6 steps");
  EXPECT_LT(first, second) << console_;
  EXPECT_LT(second, console_.find("run 11/12  adamw  6 steps")) << console_;
  EXPECT_EQ(found.at("variants").at(1).at("seconds_per_step").at("median").to_number<double>(),
            0.5);
  EXPECT_TRUE(fs::exists(folder_ / "out/runs/torch/6-steps-seed-1-at-0.2-pace-2"));
  EXPECT_NE(read_text(folder_ / "out/report.html").find("Slowest round"), std::string::npos);
}

TEST_F(ComparisonTest, TrainsOnConfiguredRanks) {
  steps_ = 24;
  const std::string late =
      R"([{"name":"in-step","set":{"phases.max_predict_steps":0,"gradient_accumulation.micro_batches":2}},
          {"name":"late","set":{"phases.method":"asynchronous_gradients","gradient_accumulation.micro_batches":2,
                                "phases.asynchronous_gradients.prediction_error_limit":0}}])";
  const json::value found = compare(late, R"(,"seeds":[0],"ranks":2)");
  std::vector<double> losses;
  for (const json::value& variant : found.at("variants").as_array()) {
    const json::value& run = variant.at("runs").at(0);
    const fs::path folder = folder_ / "out" / run.at("run").as_string().c_str();
    EXPECT_EQ(json::parse(read_text(folder / "summary.json")).at("distributed").at("ranks"), 2);
    losses.push_back(run.at("final_validation_loss").to_number<double>());
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_THROW(compare(late, R"(,"seeds":[0],"ranks":1)", true), ConfigError);
}

TEST_F(ComparisonTest, JudgesAveragedWeightsByTheirLoss) {
  const json::value found = compare(
      variants(
          R"(,{"name":"mean","set":{"phases.max_predict_steps":0,"training.average_weights":4}})"),
      R"(,"seeds":[0],"sweep":{"optimizer.learning_rate":[0.001,0.01,0.1]})");
  const json::value& run = found.at("variants").at(1).at("runs").at(0);
  const json::value summary =
      json::parse(read_text(folder_ / "out" / run.at("run").as_string().c_str() / "summary.json"));
  EXPECT_EQ(run.at("final_validation_loss"), summary.at("final_average_validation_loss"));
  EXPECT_NE(run.at("final_validation_loss"), summary.at("final_validation_loss"));
}

TEST_F(ComparisonTest, PassesPathsToProgramsAndReportsJunk) {
  const json::value found = compare(
      variants(kTorch), R"(,"seeds":[4],"sweep":{"optimizer.learning_rate":[0.1,0.2,0.3]})");
  const json::value& torch = found.at("variants").at(1);
  EXPECT_NEAR(torch.at("final_validation_loss").at("mean").to_number<double>(), 3.04 - 0.016,
              1e-12);
  EXPECT_EQ(torch.at("edge_of_sweep"), false);
  EXPECT_EQ(torch.at("budgets").at(0).at("tokens").at("mean").to_number<double>(), 64 * 16);
  EXPECT_EQ(torch.at("budgets").at(0).at("seconds").at("mean").to_number<double>(), 8);
  EXPECT_TRUE(torch.at("budgets").at(0).at("flops").is_null());
  EXPECT_TRUE(torch.at("predictions").is_null());
  EXPECT_EQ(read_text(folder_ / "out/runs/torch/16-steps-seed-4-at-0.2/seen"),
            (folder_ / "data").string());
  EXPECT_NE(json::serialize(found.at("warnings")).find("the first: loading"), std::string::npos);
}

TEST_F(ComparisonTest, FailedVariantsDoNotStopOthers) {
  const json::value found = compare(
      variants(
          R"(,{"name":"wild","set":{"optimizer.name":"sgd","optimizer.learning_rate":1e30,"optimizer.clip_norm":0,"divergence.max_skipped_updates":1}},
             {"name":"broken","command":["sh","-c","echo {}; exit 4"]},
             {"name":"silent","command":["true"]},
             {"name":"nan","command":["echo","{\"step\":16,\"tokens\":1,\"seconds\":1,\"validation_loss\":NaN}"]})"),
      R"(,"seeds":[0])");
  const auto failure = [&](std::size_t variant) {
    return std::string(
        found.at("variants").at(variant).at("failed").at(0).at("failure").as_string());
  };
  EXPECT_TRUE(found.at("variants").at(0).at("failed").as_array().empty());
  EXPECT_NE(failure(1).find("not finite"), std::string::npos) << failure(1);
  EXPECT_EQ(failure(2), "ended with exit status 4");
  EXPECT_NE(failure(3).find("printed no"), std::string::npos) << failure(3);
  EXPECT_NE(failure(4).find("not finite"), std::string::npos) << failure(4);
  for (std::size_t variant = 1; variant < 5; ++variant)
    EXPECT_TRUE(found.at("variants").at(variant).at("final_validation_loss").at("mean").is_null());
}

TEST_F(ComparisonTest, InterruptedComparisonResumesToSameLoss) {
  steps_ = 400;
  const std::string rest = R"(,"seeds":[0,1])";
  const json::value whole = compare(variants(), rest);
  fs::rename(folder_ / "out", folder_ / "whole");
  std::signal(SIGTERM, SIG_IGN);  // if it comes too late
  {
    const std::jthread stop([&](const std::stop_token& ended) {
      const fs::path checkpoints = folder_ / "out/runs/adamw/400-steps-seed-0/checkpoints";
      while (!ended.stop_requested() && !fs::exists(checkpoints)) std::this_thread::yield();
      ::kill(::getpid(), SIGTERM);
    });
    compare(variants(), rest);
  }
  std::signal(SIGTERM, SIG_DFL);
  EXPECT_TRUE(end_.interrupted);
  EXPECT_FALSE(fs::exists(folder_ / "out/result.json"));
  EXPECT_NE(console_.find("--resume"), std::string::npos) << console_;
  const json::value resumed = compare(variants(), rest, true);
  EXPECT_EQ(resumed.at("variants").at(0).at("final_validation_loss"),
            whole.at("variants").at(0).at("final_validation_loss"));
}

TEST_F(ComparisonTest, GeneratedExamplesNeedNoData) {
  write_text(folder_ / "spec.json",
             R"({"preset":"trident-tiny","budgets":[2],"seeds":[0],
                 "base":{"model":{"trident":{"held_out":8}},"data":{"batch_size":4},"phases":{"max_predict_steps":0}},
                 "variants":[{"name":"adamw","set":{}},{"name":"muon","set":{"optimizer.name":"muon"}}]})");
  std::ostringstream console;
  const std::string found =
      run_comparison({folder_ / "spec.json", folder_ / "out", false, "test"}, console).result_json;
  const json::value result = json::parse(found);
  const json::value& budget = result.at("variants").at(1).at("budgets").at(0);
  EXPECT_EQ(budget.at("tokens").at("mean").to_number<double>(), 8) << "examples of two steps";
  EXPECT_GT(budget.at("final_validation_loss").at("mean").to_number<double>(), 0);
  EXPECT_GT(budget.at("flops").at("mean").to_number<double>(), 0);
  EXPECT_NE(read_text(folder_ / "out/report.html").find("Examples"), std::string::npos);
  EXPECT_EQ(
      run_comparison({folder_ / "spec.json", folder_ / "out", true, "test"}, console).result_json,
      found);
  EXPECT_NE(console.str().find("already finished"), std::string::npos) << console.str();
}

TEST_F(ComparisonTest, RejectsFolderWithOtherContent) {
  fs::create_directory(folder_ / "out");
  write_text(folder_ / "out/notes.txt", "mine");
  EXPECT_THROW(compare(variants(), R"(,"seeds":[0])"), CannotCreate);
  EXPECT_THROW(compare(variants(), R"(,"seeds":[0])", true), CannotCreate);
  EXPECT_EQ(read_text(folder_ / "out/notes.txt"), "mine");
}

TEST_F(ComparisonTest, RejectsRunOfOtherConfiguration) {
  const std::string rest = R"(,"seeds":[0])";
  compare(variants(), rest);
  const fs::path config = folder_ / "out/runs/adamw/16-steps-seed-0/config.json";
  std::string text = read_text(config);
  text.replace(text.find("\"width\": 16"), 11, "\"width\": 32");
  write_text(config, text);
  EXPECT_THROW(compare(variants(), rest, true), ConfigError);
}

}  // namespace
}  // namespace hybrid_trainer
