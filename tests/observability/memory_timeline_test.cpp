#include "src/observability/memory_reports.h"

#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

class MemoryTimelineTest : public testing::Folder {
 protected:
  std::filesystem::path path() const { return file("memory_timeline.json"); }
  std::unique_ptr<MemoryTimeline> timeline(std::int64_t steps) {
    return std::make_unique<MemoryTimeline>(path(), steps,
                                            std::vector<std::shared_ptr<MemoryPool>>{pool_});
  }
  /// One step with one temporary and one permanent activation.
  void step(MemoryTimeline& timeline, Phase phase, std::int64_t number) {
    timeline.begin_step(phase, number);
    const MemoryLabel label("h.0.attn");
    { const Buffer passing = pool_->allocate(640, MemoryKind::kActivations, content_); }
    kept_.push_back(pool_->allocate(64, MemoryKind::kPredictor));
    timeline.end_step();
  }
  json::array events(const std::string& end = "") {
    return json::parse(text_of(path()) + end).as_array();
  }
  static std::string text(const json::value& event, const char* key) {
    return std::string(std::string_view(event.at(key).as_string()));
  }
  /// Expects each slice to end once, after its start and with the same name, and none to stay open.
  static void expect_slices_close(const json::array& events) {
    std::map<std::int64_t, std::string> open;
    std::set<std::int64_t> seen;
    std::int64_t last = 0;
    for (const json::value& event : events) {
      const std::int64_t at = event.at("ts").as_int64();
      const std::string type = text(event, "ph");
      if (type != "X") {
        EXPECT_GE(at, type == "M" ? 0 : last);
        last = std::max(last, at);
      }
      if (type == "b") {
        const std::int64_t id = event.at("id").as_int64();
        EXPECT_TRUE(seen.insert(id).second);
        open[id] = text(event, "name");
      }
      if (type == "e") {
        const auto found = open.find(event.at("id").as_int64());
        ASSERT_NE(found, open.end());
        EXPECT_EQ(found->second, text(event, "name"));
        open.erase(found);
      }
    }
    EXPECT_TRUE(open.empty());
  }
  static std::vector<std::int64_t> steps_of(const json::array& events) {
    std::vector<std::int64_t> steps;
    for (const json::value& event : events)
      if (text(event, "ph") == "X") steps.push_back(event.at("args").at("step").as_int64());
    return steps;
  }
  static int count(const json::array& events, const char* type, const std::string& name) {
    int found = 0;
    for (const json::value& event : events)
      found += text(event, "ph") == type && text(event, "name") == name;
    return found;
  }

  std::shared_ptr<MemoryPool> pool_ = MemoryPool::create("device");
  BlockContent content_{DType::kBF16, {4, 80}};
  std::vector<Buffer> kept_;
};

TEST_F(MemoryTimelineTest, RecordsFirstStepsOfEachPhase) {
  const Buffer weights = pool_->allocate(128, MemoryKind::kParameters);
  {
    const auto recorded = timeline(2);
    recorded->resume_after(0);
    std::int64_t number = 0;
    for (const Phase phase : {Phase::kWarmup, Phase::kFull, Phase::kFull, Phase::kFull,
                              Phase::kFull, Phase::kPredict, Phase::kFull})
      step(*recorded, phase, ++number);
    recorded->finish();
  }
  const json::array found = events();
  expect_slices_close(found);
  EXPECT_EQ(steps_of(found), (std::vector<std::int64_t>{1, 2, 3, 6}));
  EXPECT_EQ(count(found, "B", "full"), 1);
  EXPECT_EQ(count(found, "E", "full"), 1);
  EXPECT_EQ(count(found, "B", "predict"), 1);
  EXPECT_EQ(count(found, "i", "stopped: 2 steps of full are recorded"), 2);
  EXPECT_EQ(count(found, "b", "parameters"), 2) << "permanent allocations, once per part";
  const auto activation = std::find_if(found.begin(), found.end(), [](const json::value& event) {
    return text(event, "name") == "h.0.attn";
  });
  ASSERT_NE(activation, found.end());
  const json::object& args = activation->at("args").as_object();
  EXPECT_EQ(args.at("kind").as_string(), "activations");
  EXPECT_EQ(args.at("dtype").as_string(), "bf16");
  EXPECT_EQ(args.at("shape").as_string(), "(4, 80)");
  EXPECT_EQ(args.at("bytes").as_int64(), 640);
  std::vector<std::int64_t> counted;
  for (const json::value& event : found)
    if (text(event, "ph") == "C" && text(event, "name") == "predictor")
      counted.push_back(event.at("args").at("bytes").as_int64());
  // Three steps; then the second part counts the five live allocations and its own.
  EXPECT_EQ(counted, (std::vector<std::int64_t>{64, 128, 192, 64, 128, 192, 256, 320, 384}));
}

TEST_F(MemoryTimelineTest, StaysReadableAfterKill) {
  const auto killed = timeline(9);
  killed->resume_after(0);
  step(*killed, Phase::kWarmup, 1);
  killed->begin_step(Phase::kWarmup, 2);
  const Buffer lost = pool_->allocate(64, MemoryKind::kData);
  EXPECT_EQ(steps_of(events("\n]")), (std::vector<std::int64_t>{1}));
}

TEST_F(MemoryTimelineTest, ContinuesAfterResumedStep) {
  {
    const auto first = timeline(3);
    first->resume_after(0);
    for (std::int64_t number = 1; number <= 3; ++number) step(*first, Phase::kWarmup, number);
  }
  std::ofstream(path(), std::ios::app) << ",\n{\"ph\":\"b\",\"na";
  kept_.clear();
  {
    const auto second = timeline(3);
    second->resume_after(2);
    for (std::int64_t number = 3; number <= 5; ++number) step(*second, Phase::kWarmup, number);
    second->finish();
  }
  const json::array found = events();
  expect_slices_close(found);
  EXPECT_EQ(steps_of(found), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(count(found, "i", "resumes after step 2"), 1);
  EXPECT_EQ(count(found, "M", "process_name"), 2);
  EXPECT_EQ(count(found, "B", "warmup"), count(found, "E", "warmup"));
}

TEST_F(MemoryTimelineTest, MissingFolderThrowsCannotCreate) {
  EXPECT_THROW(MemoryTimeline(file("absent") / "x.json", 1, {}), CannotCreate);
}

}  // namespace
}  // namespace hybrid_trainer
