#include "src/observability/jsonl_sink.h"

#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

using testing::full_record;
using Change = MetricsTail::Change;
using Steps = std::vector<std::int64_t>;

class MetricsTailTest : public testing::Folder {
 protected:
  void SetUp() override {
    Folder::SetUp();
    tail_.emplace(file("metrics.jsonl"));
  }
  void write(std::int64_t first, std::int64_t last) {
    JsonlSink sink(file("metrics.jsonl"));
    for (std::int64_t step = first; step <= last; ++step) sink.write(full_record(step));
  }
  Change read() {
    return tail_->read([this] { steps_.clear(); },
                       [this](const StepRecord& record) { steps_.push_back(record.step); });
  }
  std::optional<MetricsTail> tail_;
  Steps steps_;
};

TEST_F(MetricsTailTest, ReadsOnlyNewRecords) {
  EXPECT_EQ(read(), Change::kNone);  // there is no file yet
  write(1, 3);
  EXPECT_EQ(read(), Change::kMore);
  EXPECT_EQ(read(), Change::kNone);
  write(4, 4);
  EXPECT_EQ(read(), Change::kMore);
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4}));
}

TEST_F(MetricsTailTest, WaitsForRestOfLine) {
  write(1, 2);
  const std::string text = text_of(file("metrics.jsonl"));
  const std::size_t cut = text.size() - 10;
  std::ofstream(file("metrics.jsonl"), std::ios::binary) << text.substr(0, cut);
  read();
  EXPECT_EQ(steps_, Steps{1});
  std::ofstream(file("metrics.jsonl"), std::ios::binary | std::ios::app) << text.substr(cut);
  EXPECT_EQ(read(), Change::kMore);
  EXPECT_EQ(steps_, (Steps{1, 2}));
}

TEST_F(MetricsTailTest, RestartsAfterRollback) {
  write(1, 9);
  read();
  JsonlSink(file("metrics.jsonl")).truncate_after(4);
  EXPECT_EQ(read(), Change::kReset);
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4}));
}

TEST_F(MetricsTailTest, DetectsRollbackInLongerFile) {
  write(1, 3);
  read();
  JsonlSink(file("metrics.jsonl")).truncate_after(1);
  StepRecord other = full_record(2);
  other.seconds = 0.75;
  JsonlSink(file("metrics.jsonl")).write(other);
  write(3, 6);
  EXPECT_EQ(read(), Change::kReset);
  EXPECT_EQ(steps_, (Steps{1, 2, 3, 4, 5, 6}));
}

TEST_F(MetricsTailTest, RestartsWhenFileIsRemoved) {
  write(1, 3);
  read();
  std::filesystem::remove(file("metrics.jsonl"));
  EXPECT_EQ(read(), Change::kReset);
  EXPECT_TRUE(steps_.empty());
  write(1, 2);
  EXPECT_EQ(read(), Change::kMore);
  EXPECT_EQ(steps_, (Steps{1, 2}));
}

TEST_F(MetricsTailTest, SkipsDamagedLines) {
  write(1, 1);
  std::ofstream(file("metrics.jsonl"), std::ios::app) << "{\"step\": 2, no\n\n";
  write(3, 3);
  read();
  EXPECT_EQ(steps_, (Steps{1, 3}));
}

}  // namespace
}  // namespace hybrid_trainer
