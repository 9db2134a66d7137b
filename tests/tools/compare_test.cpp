#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/finetune_fixture.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBase =
    R"({"model":{"layers":1,"heads":2,"width":16,"context":16},"data":{"batch_size":4,"sequence_length":16},)"
    R"("training":{"steps":6},"phases":{"max_predict_steps":0}})";

class Compare : public ::testing::Test {
 protected:
  static std::string spec(const std::string& arms, const std::string& more = "") {
    return R"({"data":")" + (trained_folder() / "data").string() + R"(","seeds":[0,1],"base":)" +
           kBase + R"(,"arms":)" + arms + more + "}";
  }
  /// Writes a spec on the data of trained_folder() and compares.
  ProcessResult compare(const std::string& arms, std::vector<std::string> arguments = {},
                        const std::string& more = "") const {
    write_text(folder_ / "spec.json", spec(arms, more));
    arguments.insert(arguments.begin(), {"compare", "spec.json", "--output", "out"});
    return run_hybrid(folder_.path(), arguments);
  }
  void expect(const ProcessResult& result, ExitCode code, const std::string& words) const {
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.errors;
    EXPECT_EQ(result.output, "");
    EXPECT_NE(result.errors.find(words), std::string::npos) << result.errors;
  }
  TemporaryFolder folder_;
};

constexpr const char* kTwo =
    R"([{"name":"adamw","set":{}},{"name":"muon","set":{"optimizer.name":"muon"}}])";

TEST_F(Compare, PrintsItsResultAsOneObject) {
  const ProcessResult result =
      compare(kTwo, {"--json"}, R"(,"sweep":{"optimizer.learning_rate":[1e-3,1e-2]})");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, read_text(folder_ / "out/result.json"));
  const boost::json::value found = boost::json::parse(result.output);
  EXPECT_EQ(found.at("arms").at(1).at("name"), "muon");
  EXPECT_TRUE(found.at("arms").at(0).at("edge_of_sweep").as_bool()) << "of two values";
  EXPECT_EQ(result.errors.find("run 8/8"), std::string::npos) << "no progress beside JSON";
  EXPECT_TRUE(fs::exists(folder_ / "out/runs/muon"));
  EXPECT_TRUE(fs::exists(folder_ / "out/report.html"));
}

TEST_F(Compare, SaysWhatItFoundAndWhyItClaimsNothing) {
  const ProcessResult result = compare(kTwo);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors.find("run 4/4  muon  6 steps  seed 1"), std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("no claim about muon: a claim needs at least 3 seeds"),
            std::string::npos)
      << result.errors;
  expect(compare(kTwo), ExitCode::kCannotCreate, "--resume");
  EXPECT_EQ(compare(kTwo, {"--resume"}).exit_code, 0);
  expect(compare(R"([{"name":"adamw","set":{}}])", {"--resume"}), ExitCode::kConfig, "arms:");
}

TEST_F(Compare, EndsAsTrainingDoesWhenItIsInterrupted) {
  const std::string killer =
      R"([{"name":"adamw","set":{}},{"name":"x","command":["sh","-c","kill -TERM $PPID; sleep 30"]}])";
  write_text(folder_ / "spec.json", spec(killer));
  const std::string command = "cd " + folder_.path().string() +
                              " && " HT_HYBRID_TOOL
                              " compare spec.json --output out 2>errors; [ $? -eq 130 ]";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_NE(read_text(folder_ / "errors").find("--resume"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "out/result.json"));
}

TEST_F(Finetune, OfOneModelInTwoWaysIsCompared) {
  const auto compare = [](const std::string& key) {
    const std::string adapters = R"({"name":"lora","set":{"lora.rank":2,")" + key + R"(":0.5}})";
    write_text(trained_folder() / "tuning.json",
               R"({"model":"base","data":"pairs.jsonl","budgets":[2],"seeds":[0],)"
               R"("base":{"data":{"batch_size":1}},"arms":[{"name":"full","set":{}},)" +
                   adapters + "]}");
    fs::remove_all(trained_folder() / "tuning");
    return run_hybrid(trained_folder(), {"compare", "tuning.json", "--output", "tuning"});
  };
  const ProcessResult result = compare("lora.dropout");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("lora  learning rate 2e-05  validation loss"), std::string::npos)
      << result.errors;
  EXPECT_TRUE(fs::exists(trained_folder() / "tuning/runs/lora/2-steps-seed-0/base.json"))
      << "the model of the adapters";
  const ProcessResult refused = compare("model.norm_epsilon");
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kConfig));
  EXPECT_NE(refused.errors.find("model.norm_epsilon is what the folder"), std::string::npos)
      << refused.errors;
}

}  // namespace
}  // namespace hybrid_trainer
