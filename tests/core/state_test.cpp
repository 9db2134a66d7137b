#include "hybrid_trainer/core/state.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(State, ReturnsStoredValues) {
  State state;
  state.integers["optimizer.step"] = 7;
  state.reals["phases.loss"] = 0.1;
  state.series["phases.losses"] = {1, 2};
  state.texts["trainer.phase"] = "full";
  EXPECT_EQ(state.integer("optimizer.step"), 7);
  EXPECT_EQ(state.real("phases.loss"), 0.1);
  EXPECT_EQ(state.reals_of("phases.losses"), (std::vector<double>{1, 2}));
  EXPECT_EQ(state.text("trainer.phase"), "full");
}

TEST(State, ReportsMissingEntry) {
  State state;
  state.reals["optimizer.step"] = 7;
  try {
    state.integer("optimizer.step");
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "the saved state has no integer \"optimizer.step\"");
  }
  EXPECT_THROW(state.tensor("w"), DataError);
  EXPECT_THROW(state.text("t"), DataError);
  EXPECT_THROW(state.reals_of("s"), DataError);
  EXPECT_THROW(state.real("r"), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
