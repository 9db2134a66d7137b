#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/observability/event_reader.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

testing::ReadEvents events_in(const fs::path& folder) {
  testing::ReadEvents events;
  for (const auto& entry : fs::directory_iterator(folder))
    testing::EventReader::read(read_text(entry.path()), events);
  return events;
}

TEST(TensorBoard, ResumedRunHasEachStepOnce) {
  fs::remove_all(trained_folder() / "seen");
  in_trained_folder(tiny_training("seen", {"--tensorboard"}));
  in_trained_folder({"train", "--resume", "--run", "seen", "--set", "training.steps=8"});
  const auto values = events_in(trained_folder() / "seen/tensorboard").tags.at("loss/train");
  ASSERT_EQ(values.size(), 8u);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i].step, static_cast<std::int64_t>(i) + 1);
}

TEST(TensorBoard, ConvertsRunWithoutEvents) {
  fs::remove_all(trained_folder() / "events");
  const auto found = only_object(
      in_trained_folder({"inspect", "run", "--tensorboard", "events", "--json"}).output);
  EXPECT_EQ(found.at("steps").as_int64(), 6);
  EXPECT_EQ(events_in(trained_folder() / "events").tags.at("loss/train").size(), 6u);
  EXPECT_FALSE(fs::exists(trained_folder() / "run/tensorboard"));
}

}  // namespace
}  // namespace hybrid_trainer
