#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "tests/observability/event_reader.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// Bytes that begin a character.
std::size_t characters_in(const std::string& line) {
  return static_cast<std::size_t>(
      std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

testing::ReadEvents events_in(const fs::path& folder) {
  testing::ReadEvents events;
  for (const auto& entry : fs::directory_iterator(folder))
    testing::EventReader::read(read_text(entry.path()), events);
  return events;
}

TEST(Watch, PrintsOneFrameOfARunForAPipe) {
  const std::string frame = in_trained_folder({"watch", "run", "--once"}).output;
  EXPECT_NE(frame.find("run  finished"), std::string::npos) << frame;
  EXPECT_NE(frame.find("step 6/6"), std::string::npos) << frame;
  EXPECT_EQ(frame.find('\x1b'), std::string::npos);
  std::istringstream lines(frame);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(characters_in(line), 80u) << line;
  EXPECT_EQ(in_trained_folder({"watch", "run"}).output, frame);  // no terminal to fill
}

TEST(Watch, ListsTheRunsOfAFolder) {
  const std::string list = in_trained_folder({"watch", ".", "--once"}).output;
  EXPECT_NE(list.find("\nrun "), std::string::npos) << list;
}

TEST(TensorBoard, HasTheStepsOfARunThatResumedOnceEach) {
  fs::remove_all(trained_folder() / "seen");
  in_trained_folder(tiny_training("seen", {"--tensorboard"}));
  in_trained_folder({"train", "--resume", "--run", "seen", "--set", "training.steps=8"});
  const auto values = events_in(trained_folder() / "seen/tensorboard").tags.at("loss/train");
  ASSERT_EQ(values.size(), 8u);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i].step, static_cast<std::int64_t>(i) + 1);
}

TEST(TensorBoard, IsMadeOfARunThatWroteNone) {
  fs::remove_all(trained_folder() / "events");
  const auto found = only_object(
      in_trained_folder({"inspect", "run", "--tensorboard", "events", "--json"}).output);
  EXPECT_EQ(found.at("steps").as_int64(), 6);
  EXPECT_EQ(events_in(trained_folder() / "events").tags.at("loss/train").size(), 6u);
  EXPECT_FALSE(fs::exists(trained_folder() / "run/tensorboard"));
  EXPECT_EQ(run_hybrid(trained_folder(), {"inspect", "run", "--tensorboard", "events"}).exit_code,
            static_cast<int>(ExitCode::kCannotCreate));
  EXPECT_EQ(run_hybrid(trained_folder(), {"inspect", "data", "--tensorboard", "unmade"}).exit_code,
            static_cast<int>(ExitCode::kData));
  EXPECT_FALSE(fs::exists(trained_folder() / "unmade"));
}

}  // namespace
}  // namespace hybrid_trainer
