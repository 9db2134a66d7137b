#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/trainer/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

json::object json_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return json::parse(std::string(std::istreambuf_iterator<char>(in), {})).as_object();
}

/// The direction that it aims along stays on the device: beside it a later step finds no room within
/// what updates alone take.
HybridTrainerConfig too_tight_to_predict() {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.model.vocabulary = 27;
  config.data.batch_size = 1;
  config.predict_aware_memory.offload_strategy = "none";
  config.mixed_precision = MixedPrecisionConfig::conservative();
  config.memory.device_budget.bytes =
      simulate_memory(config, {}, SimulatedPhases::kUpdates).device_bytes + 20'000;
  return config;
}

TEST(RunShortage, LeavesWhatHeldTheMemoryWhereARunEndsForWantOfIt) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  const HybridTrainerConfig config = too_tight_to_predict();
  const std::filesystem::path file = scratch / "run" / "oom.json";
  std::string message;
  try {
    train_tiny(config, scratch / "data", scratch / "run");
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("`hybrid inspect " + file.string() + "`"), std::string::npos) << message;
  const json::object found = json_of(file);
  EXPECT_EQ(found.at("phase").as_string(), "full");
  EXPECT_GT(found.at("step").as_int64(), 8);
  EXPECT_EQ(found.at("pool").as_string(), "device");
  const auto budget = static_cast<std::int64_t>(config.memory.device_budget.bytes);
  EXPECT_EQ(found.at("budget_bytes").as_int64(), budget);
  const std::int64_t free = found.at("free_bytes").as_int64(),
                     live = found.at("live_bytes").as_int64();
  EXPECT_EQ(free, budget - live);
  const json::object& asked = found.at("asked").as_object();
  EXPECT_GT(asked.at("bytes").as_int64(), free);
  EXPECT_EQ(
      message.find("device memory: asked for " + std::to_string(asked.at("bytes").as_int64())), 0u)
      << message;
  EXPECT_NE(asked.at("label").as_string(), "");
  EXPECT_FALSE(asked.at("shape").as_array().empty());
  std::int64_t sum = 0;
  bool predictor = false;
  for (const json::value& row : found.at("live_by_kind").as_array()) {
    sum += row.at("bytes").as_int64();
    predictor |= row.at("kind").as_string() == "predictor";
  }
  EXPECT_EQ(sum, live);
  EXPECT_TRUE(predictor) << "which is why there is too little";
  const json::array& largest = found.at("largest_blocks").as_array();
  ASSERT_EQ(largest.size(), 10u);
  EXPECT_NE(largest[0].at("label").as_string().find(".mlp."), json::string::npos);
  EXPECT_EQ(largest[0].at("shape"), (json::array{64, 256}));
  for (std::size_t i = 1; i < largest.size(); ++i)
    EXPECT_LE(largest[i].at("bytes").as_int64(), largest[i - 1].at("bytes").as_int64());

  HybridTrainerConfig roomy = config;
  roomy.memory.device_budget = {};
  EXPECT_EQ(train_tiny(roomy, scratch / "data", scratch / "run", true).end, RunEnd::kFinished);
  EXPECT_FALSE(std::filesystem::exists(file)) << "of a state that is no more";
}

}  // namespace
}  // namespace hybrid_trainer
