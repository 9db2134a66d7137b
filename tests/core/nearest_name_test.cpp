#include "src/core/messages.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

const std::vector<std::string> kNames{"warmup_steps", "full_steps", "max_predict_steps", "decay"};

TEST(NearestName, FindsMisspelledNames) {
  EXPECT_EQ(nearest_name("warmup_step", kNames), "warmup_steps");
  EXPECT_EQ(nearest_name("wramup_steps", kNames), "warmup_steps");
  EXPECT_EQ(nearest_name("max_predictsteps", kNames), "max_predict_steps");
  EXPECT_EQ(nearest_name("decya", kNames), "decay");
  EXPECT_EQ(nearest_name("decay", kNames), "decay");
}

TEST(NearestName, IsEmptyWithoutNearName) {
  EXPECT_EQ(nearest_name("tokenizer", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("decay", {}), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), kNames), "");
}

TEST(NearestName, CountsTranspositionAsOneEdit) {
  EXPECT_EQ(nearest_name("ba", {"xa", "ab"}), "xa");
  EXPECT_EQ(nearest_name("form", {"forums", "from"}), "from");
}

/// A full table of distances to this candidate would take 16 GB.
TEST(NearestName, SkipsMuchLongerCandidates) {
  const std::vector<std::string> names{std::string(10'000'000, 'a'), "decay"};
  EXPECT_EQ(nearest_name("decya" + std::string(195, 'x'), names), "");
  EXPECT_EQ(nearest_name("decya", names), "decay");
}

TEST(NameHint, SuggestsNearestOrListsAll) {
  EXPECT_EQ(name_hint("decoy", kNames), "; did you mean decay?");
  EXPECT_EQ(name_hint("qqqqq", {"adamw", "sgd"}), "; valid: adamw, sgd");
}

}  // namespace
}  // namespace hybrid_trainer
