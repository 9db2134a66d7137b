#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>

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

TEST_F(Plan, AnswersWithTheKeysThatProgramsReadAndWithItsExitCode) {
  const json::object found = answer({"--preset", "tiny", "--device-budget", "1GiB"});
  for (const char* key : {"device_peak_bytes", "host_peak_bytes", "disk_peak_bytes", "options",
                          "expected_slowdown", "missing_bytes", "largest_batch"}) {
    EXPECT_TRUE(found.contains(key)) << key;
  }
  EXPECT_TRUE(found.at("fits").as_bool());
  for (const char* phase : {"warmup", "full", "predict", "correct"}) {
    const json::object& of_phase = found.at("phases").at(phase).as_object();
    EXPECT_GT(of_phase.at("peak_bytes").to_number<double>(), 0) << phase;
    EXPECT_TRUE(of_phase.at("by_kind").as_object().contains("activations")) << phase;
  }
  EXPECT_EQ(plan({"--preset", "tiny", "--device-budget", "1GiB"}).exit_code, 0);
  const ProcessResult small = plan({"--preset", "tiny", "--device-budget", "100kB"});
  EXPECT_EQ(small.exit_code, 71);
  EXPECT_NE(small.output.find("does not fit"), std::string::npos) << small.output;
  EXPECT_NE(small.output.find("missing"), std::string::npos) << small.output;
  EXPECT_EQ(small.output.find("memory.segment_length"), std::string::npos) << small.output;
  const ProcessResult scanned = plan({"--preset", "mamba2-tiny", "--device-budget", "100kB"});
  EXPECT_NE(scanned.output.find("--set memory.segment_length=N"), std::string::npos)
      << scanned.output;
}

TEST_F(Plan, SaysWhereThingsLieAndHowManyBytesOfThem) {
  const std::vector<std::string> arguments{
      "--preset", "tiny", "--set", "memory.weights=host", "--set", "memory.activation_bits=16"};
  const json::object found = answer(arguments);
  std::map<std::string, json::object> by_kind;
  for (const json::value& row : found.at("placements").as_array())
    by_kind[row.at("what").as_string().c_str()] = row.as_object();
  EXPECT_EQ(by_kind.at("weights").at("place"), "host");
  EXPECT_EQ(by_kind.at("gradients").at("place"), "device");
  EXPECT_EQ(by_kind.at("activations").at("bits"), 16);
  for (const auto& [what, row] : by_kind)
    EXPECT_GT(row.at("bytes").to_number<double>(), 10'000) << what;
  EXPECT_LE(by_kind.at("weights").at("bytes").to_number<double>(),
            found.at("host_peak_bytes").to_number<double>());
  const std::string text = plan(arguments).output;
  EXPECT_NE(text.find("between its uses"), std::string::npos) << text;
}

TEST_F(Plan, WritesAConfigurationThatFits) {
  const std::vector<std::string> wanted{"--preset", "tiny", "--device-budget", "10MB"};
  std::vector<std::string> arguments = wanted;
  arguments.insert(arguments.end(), {"--apply", "fits.json"});
  const json::object chosen = answer(arguments);
  ASSERT_TRUE(chosen.at("fits").as_bool());
  EXPECT_FALSE(chosen.at("options").as_object().empty());
  const json::object again = answer(
      {"--config", "fits.json", "--set", "model.vocabulary=4096", "--device-budget", "10MB"});
  EXPECT_TRUE(again.at("options").as_object().empty());
  EXPECT_EQ(again.at("device_peak_bytes"), chosen.at("device_peak_bytes"));
}

TEST_F(Plan, NamesTheCommandThatTrainsSo) {
  const json::object found = answer({"--preset", "tiny", "--device-budget", "10MB", "--set",
                                     "training.steps=5", "--set", "phases.max_predict_steps=0"});
  const auto command = std::string(found.at("command").as_string());
  EXPECT_NE(command.find(" train --preset tiny --data DATA --run RUN --set training.steps=5"),
            std::string::npos)
      << command;
  for (const auto& [key, value] : found.at("options").as_object())
    EXPECT_NE(command.find(" --set " + std::string(key) + "="), std::string::npos) << command;
  EXPECT_TRUE(command.ends_with("--set memory.device_budget=10MB")) << command;
}

TEST_F(Plan, ComparesDeviceAndHostTogetherWithAProcessorsMachine) {
  const std::vector<std::string> large{"--preset", "gpt2-1558m",      "--device-budget",
                                       "4GiB",     "--set",           "model.layers=60",
                                       "--set",    "model.width=4800"};
  const json::object found = answer(large);
  const auto bytes = [&](const char* key) { return found.at(key).to_number<double>(); };
  ASSERT_GT(bytes("host_peak_bytes"), bytes("machine_available_bytes"));
  EXPECT_FALSE(found.at("fits").as_bool());
  std::vector<std::string> elsewhere = large;  // for a machine that is described
  elsewhere.insert(elsewhere.end(), {"--host-budget", "1TiB"});
  EXPECT_TRUE(answer(elsewhere).at("machine_available_bytes").is_null());
}

TEST_F(Plan, KnowsAnotherMachinesDeviceByItsMemory) {
  if (look_for_cuda().runtime != nullptr) GTEST_SKIP() << "this machine has a device";
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
  const ProcessResult plain = plan({"--preset", "tiny", "--device-budget", "16"});
  EXPECT_EQ(plain.exit_code, 64);
  EXPECT_NE(plain.errors.find("want a size with its unit"), std::string::npos) << plain.errors;
  EXPECT_TRUE(answer({"--preset", "tiny"}).at("device_margin_bytes").is_null());
  const ProcessResult without = plan({"--preset", "tiny", "--device", "cuda"});
  EXPECT_EQ(without.exit_code, 64);
  EXPECT_NE(without.errors.find("--device-budget"), std::string::npos) << without.errors;
}

TEST_F(Plan, SaysWhyThereAreNoColumnsOfPredictions) {
  const auto output = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--preset", "tiny"});
    return plan(more).output;
  };
  EXPECT_EQ(output({}).find("no columns"), std::string::npos);
  EXPECT_NE(output({"--host-budget", "100kB"})
                .find("no columns predict and correct: predicting "
                      "takes"),
            std::string::npos);
  EXPECT_NE(output({"--set", "training.steps=20"}).find("the run is too short"), std::string::npos);
}

TEST_F(Plan, TakesAStepsTokens) {
  const auto activations = [&](const char* tokens) {
    return answer({"--preset", "small", "--tokens-per-step", tokens, "--set",
                   "phases.max_predict_steps=0"})
        .at("phases")
        .at("full")
        .at("by_kind")
        .at("activations")
        .to_number<double>();
  };
  EXPECT_GT(activations("8192"), 1.8 * activations("4096"));
}

TEST_F(Plan, SaysWhatRanksSend) {
  const std::vector<std::string> asked{
      "--preset", "tiny", "--devices", "2", "--set", "gradient_accumulation.micro_batches=2"};
  const json::object found = answer(asked);
  const double weights =
      found.at("phases")
          .at("full")
          .at("by_kind")
          .at("optimizer_state")
          .to_number<double>();  // of Muon: a momentum, and AdamW's two of the rest
  EXPECT_GT(found.at("sent_bytes_per_step").to_number<double>(), 0.5 * weights);
  EXPECT_LT(found.at("sent_bytes_per_step").to_number<double>(), 1.5 * weights);
  std::vector<std::string> linked = asked;
  linked.insert(linked.end(), {"--link", "1MB"});
  EXPECT_NE(plan(linked).output.find(" s that a link of 1MB a second is busy"), std::string::npos);
  EXPECT_TRUE(found.at("seconds_per_step").is_null());
  const auto seconds = [times = answer(linked)](const char* key) {
    return times.at(key).to_number<double>();
  };
  EXPECT_GT(seconds("computing_seconds_per_step"), 0);
  EXPECT_GT(seconds("exposed_seconds_per_step"), 0);
  EXPECT_LE(seconds("exposed_seconds_per_step"), seconds("link_seconds_per_step"));
  EXPECT_DOUBLE_EQ(seconds("seconds_per_step"),
                   seconds("computing_seconds_per_step") + seconds("exposed_seconds_per_step"));
}

TEST_F(Plan, TakesTheStageThatIsAskedForOrConfigured) {
  const auto stage_of = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"--preset", "tiny",  "--devices",
                                 "2",        "--set", "gradient_accumulation.micro_batches=2"};
    all.insert(all.end(), more.begin(), more.end());
    return answer(all).at("zero").to_number<int>();
  };
  EXPECT_EQ(stage_of({}), 0);
  EXPECT_EQ(stage_of({"--zero", "2"}), 2);
  EXPECT_EQ(stage_of({"--set", "distributed.zero=3"}), 3);
  EXPECT_EQ(stage_of({"--set", "distributed.zero=3", "--zero", "0"}), 0);
}

}  // namespace
}  // namespace hybrid_trainer
