#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

// Parts of a model on the command line.
namespace hybrid_trainer {
namespace {

namespace json = boost::json;

class PartOptions : public ::testing::Test {
 protected:
  static ProcessResult call(const std::vector<std::string>& arguments) {
    return run_hybrid(trained_folder(), arguments);
  }
};

TEST_F(PartOptions, AreSetKeyByKeyAndAsAWhole) {
  const json::value by_key =
      json::parse(call({"config", "--preset", "tiny", "--set", "parts.h.0.*.lora=4", "--set",
                        "parts.h.0.*.base=nf4", "--set", "parts.wte.*.place=host"})
                      .output);
  const json::value wanted =
      json::parse(R"({"h.0.*": {"lora": 4, "base": "nf4"}, "wte.*": {"place": "host"}})");
  EXPECT_EQ(by_key.at("parts"), wanted);
  const json::value whole = json::parse(
      call({"config", "--preset", "tiny", "--set", "parts=" + json::serialize(wanted)}).output);
  EXPECT_EQ(whole.at("parts"), wanted);
}

TEST_F(PartOptions, AreTrainedAndExportedMerged) {
  const std::vector<std::string> train{"train",
                                       "--preset",
                                       "tiny",
                                       "--data",
                                       "data",
                                       "--run",
                                       "parts-run",
                                       "--set",
                                       "parts.h.*.attn.*.lora=4",
                                       "--set",
                                       "training.steps=4",
                                       "--set",
                                       "model.context=16",
                                       "--set",
                                       "data.sequence_length=16"};
  const ProcessResult result = call(train);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(call({"export", "parts-run", "--output", "parts-out"}).exit_code, 0);
  const ProcessResult merged = call({"export", "parts-run", "--output", "parts-out", "--merge"});
  EXPECT_EQ(merged.exit_code, 0) << merged.errors;
  EXPECT_EQ(call({"eval", "parts-out", "--data", "data"}).exit_code, 0);
  for (const char* folder : {"parts-run", "parts-out"})
    std::filesystem::remove_all(trained_folder() / folder);
}

TEST_F(PartOptions, AMethodOfAPresetIsPlannedAndTrained) {
  const auto bytes = [](const std::string& method) {
    const ProcessResult result = call({"plan", "--preset", "small", "--method", method, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return json::parse(result.output).at("device_peak_bytes").to_number<double>();
  };
  EXPECT_LT(bytes("qlora"), bytes("lora"));
  EXPECT_LT(bytes("lora"), bytes("full"));
  const ProcessResult plan = call({"plan", "--preset", "tiny", "--method", "qlora"});
  EXPECT_NE(plan.output.find("train --preset tiny --method qlora --data DATA"), std::string::npos)
      << plan.output;
  EXPECT_EQ(call({"plan", "--preset", "tiny", "--method", "qlorra"}).exit_code,
            static_cast<int>(ExitCode::kUsage));
}

}  // namespace
}  // namespace hybrid_trainer
