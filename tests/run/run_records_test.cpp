#include "src/run/run_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "tests/observability/event_reader.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  return record;
}

TEST(RunRecords, RestoresRecordsUpToSyncedStep) {
  const TemporaryFolder folder;
  const RunPaths paths{folder.path().string()};
  std::ostringstream console;
  {
    RunRecords records(paths, 10, console, false);
    for (std::int64_t step = 1; step <= 6; ++step) {
      records.write(record_of(step));
      if (step == 4) records.sync();
    }
  }
  RunRecords resumed(paths, 10, console, false);
  resumed.resume_after(4);
  EXPECT_EQ(resumed.summary().steps, 4);
}

TEST(RunRecords, ReportsMissingRecordsAndKeepsStepCount) {
  const TemporaryFolder folder;
  const RunPaths paths{folder.path().string()};
  std::ostringstream console;
  {
    RunRecords records(paths, 10, console, false);
    for (const std::int64_t step : {1, 2, 5}) records.write(record_of(step));
  }
  RunRecords resumed(paths, 10, console, false);
  resumed.resume_after(6);
  EXPECT_EQ(resumed.summary().steps, 6);
  EXPECT_NE(console.str().find("has 3 of the 6 completed steps"), std::string::npos)
      << console.str();
}

/// The steps that TensorBoard would show.
std::vector<std::int64_t> steps_of_events(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  std::ranges::sort(files);
  testing::ReadEvents events;
  for (const auto& file : files) testing::EventReader::read(read_text(file), events);
  std::vector<std::int64_t> steps;
  for (const testing::EventValue& value : events.tags["phase"]) steps.push_back(value.step);
  return steps;
}

TEST(RunRecords, RollbackAndResumeDropLaterEvents) {
  const TemporaryFolder folder;
  const RunPaths paths{folder.path().string()};
  std::ostringstream console;
  {
    RunRecords records(paths, 10, console, false);
    records.write_tensorboard("{}");
    for (std::int64_t step = 1; step <= 6; ++step) records.write(record_of(step));
    records.rewind_to(3);
    records.write(record_of(4));
    EXPECT_EQ(steps_of_events(paths.tensorboard()), (std::vector<std::int64_t>{1, 2, 3, 4}));
  }
  RunRecords resumed(paths, 10, console, false);
  resumed.resume_after(2);
  resumed.write_tensorboard("{}");
  resumed.write(record_of(3));
  EXPECT_EQ(steps_of_events(paths.tensorboard()), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(RunRecords, ContinuesWhenEventsCannotBeWritten) {
  const TemporaryFolder folder;
  const RunPaths paths{folder.path().string()};
  write_text(paths.tensorboard(), "a file in the folder's place");
  std::ostringstream console;
  RunRecords records(paths, 10, console, false);
  records.write_tensorboard("{}");
  for (std::int64_t step = 1; step <= 2; ++step) records.write(record_of(step));
  EXPECT_NE(console.str().find("stopped writing tensorboard/"), std::string::npos);
  EXPECT_EQ(records.summary().steps, 2);
}

TEST(RunRecords, ReportsFailedSyncOnceAndContinues) {
  const TemporaryFolder folder;
  const RunPaths paths{folder.path().string()};
  std::filesystem::create_symlink("/dev/null", paths.metrics());  // rejects fsync
  std::ostringstream console;
  RunRecords records(paths, 10, console, false);
  for (std::int64_t step = 1; step <= 3; ++step) {
    records.write(record_of(step));
    records.sync();
  }
  const std::string text = console.str();
  const std::size_t first = text.find("metrics.jsonl durable");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("metrics.jsonl durable", first + 1), std::string::npos) << text;
  EXPECT_EQ(records.summary().steps, 3);
}

}  // namespace
}  // namespace hybrid_trainer
