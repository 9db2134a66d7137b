#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <set>

#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

json::array events_of(const std::filesystem::path& run) {
  std::ifstream in(run / "memory_timeline.json", std::ios::binary);
  return json::parse(std::string(std::istreambuf_iterator<char>(in), {})).as_array();
}

TEST(RunTimeline, RecordsEachPhaseWithoutChangingResult) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  HybridTrainerConfig config = tiny_config();
  train_tiny(config, scratch / "data", scratch / "plain");
  EXPECT_FALSE(std::filesystem::exists(scratch / "plain" / "memory_timeline.json"));
  config.memory.timeline = 2;
  config.memory.optimizer_state = "host";
  const std::filesystem::path run = scratch / "run";
  train_tiny(config, scratch / "data", run);
  std::map<std::string, int> steps;
  std::set<std::string> slices, kinds_on_host;
  for (const json::value& event : events_of(run)) {
    const json::string& type = event.at("ph").as_string();
    if (type == "X")
      ++steps[std::string(std::string_view(event.at("args").at("phase").as_string()))];
    if (type == "b") slices.insert(std::string(std::string_view(event.at("name").as_string())));
    if (type == "C" && event.at("pid").as_int64() == 3)
      kinds_on_host.insert(std::string(std::string_view(event.at("name").as_string())));
  }
  EXPECT_EQ(steps, (std::map<std::string, int>{
                       {"warmup", 2}, {"full", 2}, {"predict", 2}, {"correct", 2}}));
  for (const char* name : {"h.0.attn", "h.0.mlp", "h.0.mlp.c_fc.weight", "head", "embedding"})
    EXPECT_TRUE(slices.contains(name)) << name;
  EXPECT_TRUE(kinds_on_host.contains("optimizer_state"));
  EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(scratch / "plain"));

  std::filesystem::remove_all(run / "checkpoints" / "step-0000000040");
  train_tiny(config, scratch / "data", run, true);
  EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(scratch / "plain"));
  int again = 0;
  for (const json::value& event : events_of(run)) again += event.at("ph").as_string() == "X";
  EXPECT_EQ(again, 8) << "earlier recordings count";
}

}  // namespace
}  // namespace hybrid_trainer
