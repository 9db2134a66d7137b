#include "src/generation/growing_text.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

TEST(StopStrings, HoldBackPossibleStopPrefix) {
  StopStrings stop({"</end>", "STOP"});
  EXPECT_EQ(stop.add("a <"), "a ");
  EXPECT_EQ(stop.add("/e"), "");
  EXPECT_EQ(stop.add("x S"), "</ex ");
  EXPECT_FALSE(stop.reached());
  EXPECT_EQ(stop.rest(), "S");
  EXPECT_EQ(stop.rest(), "");
}

TEST(StopStrings, EarliestMatchInTextWins) {
  StopStrings stop({"cd", "bcx", "bc"});
  EXPECT_EQ(stop.add("ab"), "a");
  EXPECT_EQ(stop.add("c"), "");
  EXPECT_TRUE(stop.reached());
  EXPECT_EQ(stop.add("more"), "");
  EXPECT_EQ(stop.rest(), "");
}

TEST(StopStrings, FindMatchWithOverlappingPrefix) {
  StopStrings stop({"aab"});
  std::string text;
  for (const char* piece : {"x", "a", "a", "a", "b", "c"}) text += stop.add(piece);
  EXPECT_EQ(text, "xa");
  EXPECT_TRUE(stop.reached());
}

TEST(StopStrings, EmptyListPassesTextAndEmptyStringThrows) {
  StopStrings none({});
  EXPECT_EQ(none.add("abc"), "abc");
  EXPECT_THROW(StopStrings({"a", ""}), UsageError);
}

}  // namespace
}  // namespace hybrid_trainer
