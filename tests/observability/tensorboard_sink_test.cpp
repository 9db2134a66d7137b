#include "src/observability/tensorboard_sink.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/observability/jsonl_sink.h"
#include "tests/observability/event_reader.h"
#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
using testing::EventReader;
using testing::EventValue;
using testing::full_record;
using testing::ReadEvents;

class TensorBoardSinkTest : public testing::Folder {
 protected:
  fs::path metrics() const { return file("metrics.jsonl"); }
  fs::path folder() const { return file("tensorboard"); }
  std::vector<fs::path> event_files(const fs::path& where) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(where)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  /// Events of all files, in TensorBoard's reading order.
  ReadEvents events(const fs::path& where) const {
    ReadEvents all;
    for (const fs::path& path : event_files(where)) EventReader::read(text_of(path), all);
    return all;
  }
  void write_metrics(std::int64_t first, std::int64_t last, double loss = 3) {
    JsonlSink sink(metrics());
    for (std::int64_t step = first; step <= last; ++step) {
      StepRecord record = full_record(step);
      record.loss = loss + 0.1 * static_cast<double>(step);
      sink.write(record);
    }
  }
  static std::vector<std::int64_t> steps_of(const std::vector<EventValue>& values) {
    std::vector<std::int64_t> steps;
    for (const EventValue& value : values) steps.push_back(value.step);
    return steps;
  }
};

TEST(Crc32c, MatchesRfc3720Examples) {  // Source: RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST_F(TensorBoardSinkTest, WritesRecordNumbersAsFloat32) {
  write_metrics(1, 0);
  TensorBoardSink sink(folder(), metrics(), "{\"a\": 1}");
  StepRecord record = full_record(7, Phase::kPredict);
  record.average_validation_loss = 3.4;
  sink.write(record);
  const ReadEvents found = events(folder());
  EXPECT_EQ(found.version, "brain.Event:2");
  const std::map<std::string, double> wanted{{"loss/train", record.loss},
                                             {"loss/validation", 3.5},
                                             {"loss/validation_of_average", 3.4},
                                             {"loss/predicted", 3.25},
                                             {"learning_rate", 1e-3},
                                             {"gradient_norm", 0.7},
                                             {"tokens_per_second", 2048},
                                             {"memory/device_peak_bytes", 110000},
                                             {"memory/host_bytes", 77},
                                             {"phase", 2},
                                             {"predictions/kept_fraction", 1},
                                             {"predictions/confidence", 0.5},
                                             {"cost", 2.4}};
  for (const auto& [tag, value] : wanted) {
    ASSERT_EQ(found.tags.count(tag), 1u) << tag;
    EXPECT_EQ(found.tags.at(tag).front().number, static_cast<float>(value)) << tag;
    EXPECT_EQ(found.tags.at(tag).front().step, 7) << tag;
  }
  EXPECT_EQ(found.tags.size(), wanted.size() + 2);
  EXPECT_EQ(found.tags.at("decisions").front().text, "    " + record.event);
  EXPECT_EQ(found.tags.at("configuration").front().text, "    {\"a\": 1}");
  EXPECT_EQ(found.tags.at("configuration").front().step, 0);
}

TEST_F(TensorBoardSinkTest, OmitsAbsentAndNonFiniteValues) {
  write_metrics(1, 0);
  TensorBoardSink sink(folder(), metrics(), "");
  StepRecord record;
  record.step = 1;
  record.loss = std::numeric_limits<double>::infinity();
  sink.write(record);
  const ReadEvents found = events(folder());
  EXPECT_EQ(found.tags.count("loss/train"), 0u);
  EXPECT_EQ(found.tags.count("gradient_norm"), 0u);
  EXPECT_EQ(found.tags.count("decisions"), 0u);
  EXPECT_EQ(found.tags.count("phase"), 1u);
}

TEST_F(TensorBoardSinkTest, WallTimeIsStartPlusElapsedSeconds) {
  write_metrics(1, 0);
  TensorBoardSink sink(folder(), metrics(), "");
  for (std::int64_t step = 1; step <= 3; ++step) sink.write(full_record(step));
  const ReadEvents found = events(folder());
  const double begin =
      found.tags.at("configuration").empty() ? 0 : found.tags.at("configuration").front().wall_time;
  EXPECT_NEAR(begin, static_cast<double>(std::time(nullptr)), 60);
  EXPECT_DOUBLE_EQ(found.tags.at("phase").at(2).wall_time, begin + 1.5);
}

TEST_F(TensorBoardSinkTest, RewritesWithoutRolledBackSteps) {
  write_metrics(1, 0);
  double begin = 0;
  {
    TensorBoardSink sink(folder(), metrics(), "");
    JsonlSink lines(metrics());
    for (std::int64_t step = 1; step <= 9; ++step) {
      lines.write(full_record(step));
      sink.write(full_record(step));
    }
    begin = events(folder()).tags.at("configuration").front().wall_time;
    lines.truncate_after(5);
    sink.rewrite_file();  // the run goes back
    EXPECT_EQ(steps_of(events(folder()).tags.at("phase")),
              (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
    lines.write(full_record(6));
    sink.write(full_record(6));
  }
  const fs::path before = event_files(folder()).back();
  JsonlSink(metrics()).truncate_after(4);
  TensorBoardSink resumed(folder(), metrics(), "");  // a different process
  resumed.write(full_record(5));
  const ReadEvents found = events(folder());
  EXPECT_EQ(steps_of(found.tags.at("loss/train")), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(found.tags.at("configuration").front().wall_time, begin);
  EXPECT_EQ(found.restarts, 1) << "readers must discard earlier events";
  EXPECT_GT(event_files(folder()).back(), before) << "TensorBoard reads files by their names";
}

TEST_F(TensorBoardSinkTest, EmptiesOldFileThenRemovesIt) {
  write_metrics(1, 2);
  { TensorBoardSink first(folder(), metrics(), ""); }
  const fs::path cut = event_files(folder()).front();
  TensorBoardSink second(folder(), metrics(), "");
  ReadEvents found;
  EventReader::read(text_of(cut), found);
  EXPECT_EQ(found.version, "brain.Event:2");
  EXPECT_TRUE(found.tags.empty());
  fs::last_write_time(cut, fs::last_write_time(cut) - std::chrono::hours(1));
  second.rewrite_file();
  EXPECT_FALSE(fs::exists(cut));
  EXPECT_EQ(event_files(folder()).size(), 2u);
}

TEST_F(TensorBoardSinkTest, KeepsFilesOfOtherPrograms) {
  write_metrics(1, 2);
  fs::create_directories(folder());
  std::ofstream(folder() / "events.out.tfevents.1.mine") << "of another program";
  std::ofstream(folder() / "notes.txt") << "mine";
  { TensorBoardSink first(folder(), metrics(), ""); }
  TensorBoardSink second(folder(), metrics(), "");
  EXPECT_EQ(text_of(folder() / "events.out.tfevents.1.mine"), "of another program");
  EXPECT_EQ(text_of(folder() / "notes.txt"), "mine");
  EXPECT_EQ(event_files(folder()).size(), 4u);
}

TEST_F(TensorBoardSinkTest, FinishedRunMatchesStepByStepEvents) {
  write_metrics(1, 0);
  TensorBoardSink sink(folder(), metrics(), "settings");
  JsonlSink lines(metrics());
  for (std::int64_t step = 1; step <= 5; ++step) {
    StepRecord record = full_record(step);
    record.loss = 1.0 / (3 + static_cast<double>(step));
    lines.write(record);
    sink.write(record);
  }
  EXPECT_EQ(write_tensorboard(file("made"), metrics(), "settings"), 5);
  const ReadEvents live = events(folder()), made = events(file("made"));
  ASSERT_EQ(made.tags.size(), live.tags.size());
  for (const auto& [tag, values] : live.tags) {
    ASSERT_EQ(made.tags.at(tag).size(), values.size()) << tag;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(made.tags.at(tag)[i].number, values[i].number) << tag;
      EXPECT_EQ(made.tags.at(tag)[i].step, values[i].step) << tag;
      EXPECT_EQ(made.tags.at(tag)[i].text, values[i].text) << tag;
    }
  }
}

TEST_F(TensorBoardSinkTest, RejectsFolderWithEvents) {
  write_metrics(1, 2);
  write_tensorboard(file("made"), metrics(), "");
  const fs::path kept = event_files(file("made")).front();
  EXPECT_THROW(write_tensorboard(file("made"), metrics(), ""), CannotCreate);
  EXPECT_EQ(event_files(file("made")), std::vector<fs::path>{kept});
  EXPECT_THROW(write_tensorboard(file("new"), file("absent.jsonl"), ""), MissingInput);
  EXPECT_FALSE(fs::exists(file("new")));
}

}  // namespace
}  // namespace hybrid_trainer
