#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

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

}  // namespace
}  // namespace hybrid_trainer
