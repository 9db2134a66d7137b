#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "src/core/cuda_runtime.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

class Plan : public ::testing::Test {
 protected:
  ProcessResult plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "plan");
    return run_hybrid(folder_.path(), arguments);
  }
  json::object answer(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const ProcessResult result = plan(std::move(arguments));
    return json::parse(result.output).as_object();
  }
  TemporaryFolder folder_;
};

TEST_F(Plan, PlansForAbsentDeviceByBudget) {
  if (find_cuda().runtime != nullptr) GTEST_SKIP() << "this machine has a device";
  const json::object found =
      answer({"--preset", "gpt2-1558m", "--device", "cuda", "--device-budget", "16GiB"});
  EXPECT_TRUE(found.at("fits").as_bool());
  EXPECT_FALSE(found.at("notes").as_array().empty());
  EXPECT_TRUE(found.at("machine_available_bytes").is_null());
  EXPECT_EQ(found.at("device_margin_bytes"), std::int64_t{1} << 30);
  const std::string text =
      plan({"--preset", "tiny", "--device", "cuda", "--device-budget", "16GiB"}).output;
  EXPECT_NE(text.find(" of 17.2 GB\n  the run"), text.npos) << text;
  EXPECT_NE(text.find("1.61 GB: 1.07 GB kept free for its libraries, 537 MB for its context"),
            text.npos)
      << text;
  EXPECT_EQ(found.at("device_total_bytes").to_number<std::int64_t>(),
            found.at("device_peak_bytes").to_number<std::int64_t>() + (std::int64_t{3} << 29));
  EXPECT_LE(found.at("device_total_bytes").to_number<std::int64_t>(), std::int64_t{16} << 30);
  EXPECT_NE(std::string(found.at("command").as_string()).find("memory.device_budget=14848MiB"),
            std::string::npos);
  EXPECT_TRUE(answer({"--preset", "tiny"}).at("device_margin_bytes").is_null());
  const ProcessResult without = plan({"--preset", "tiny", "--device", "cuda"});
  EXPECT_EQ(without.exit_code, 64);
  EXPECT_NE(without.errors.find("--device-budget"), std::string::npos) << without.errors;
}

}  // namespace
}  // namespace hybrid_trainer
