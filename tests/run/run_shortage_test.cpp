#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <csignal>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

json::object json_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return json::parse(std::string(std::istreambuf_iterator<char>(in), {})).as_object();
}

/// A config whose activations do not fit on the disk.
HybridTrainerConfig too_much_for_the_disk() {
  HybridTrainerConfig config = tiny_config();
  config.data.batch_size = 1;  // cannot be halved
  config.memory.activations = "file";
  return config;
}

TEST(RunShortage, OutOfMemoryWritesReportOfLiveBlocks) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  HybridTrainerConfig config = too_much_for_the_disk();
  config.memory.folder = scratch.path().string();
  const std::filesystem::path file = scratch / "run" / "oom.json";
  std::string message;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{20'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    train_tiny(config, scratch / "data", scratch / "run");
  } catch (const OutOfMemory& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_NE(message.find("`hybrid inspect " + file.string() + "`"), std::string::npos) << message;
  const json::object found = json_of(file);
  EXPECT_EQ(found.at("phase").as_string(), "warmup");
  EXPECT_EQ(found.at("step").as_int64(), 1);
  const std::string pool = "scratch file in " + scratch.path().string();
  EXPECT_EQ(found.at("pool").as_string(), pool);
  const json::object& asked = found.at("asked").as_object();
  const std::int64_t bytes = asked.at("bytes").as_int64();
  EXPECT_EQ(message.find(pool + " memory: asked for " + std::to_string(bytes)), 0u) << message;
  EXPECT_NE(asked.at("label").as_string(), "");
  EXPECT_FALSE(asked.at("shape").as_array().empty());
  std::int64_t sum = 0;
  for (const json::value& row : found.at("live_by_kind").as_array()) {
    EXPECT_EQ(row.at("kind").as_string(), "activations");
    sum += row.at("bytes").as_int64();
  }
  EXPECT_EQ(sum, found.at("live_bytes").as_int64());
  EXPECT_GT(sum, 0);
  const json::array& largest = found.at("largest_blocks").as_array();
  ASSERT_FALSE(largest.empty());
  EXPECT_LE(largest.size(), 10u);
  for (std::size_t i = 1; i < largest.size(); ++i)
    EXPECT_LE(largest[i].at("bytes").as_int64(), largest[i - 1].at("bytes").as_int64());

  EXPECT_EQ(train_tiny(config, scratch / "data", scratch / "run", true).end, RunEnd::kFinished);
  EXPECT_FALSE(std::filesystem::exists(file)) << "the file describes an earlier state";
}

}  // namespace
}  // namespace hybrid_trainer
