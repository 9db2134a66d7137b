#include "hybrid_trainer/generation/text_generation.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

struct Text {
  double seconds = 0;
  std::int64_t tokens = 0, drafted = 0;
};

/// Seconds per token: 1 without drafts, `each` more per draft in a pass, and `draft` to make one.
struct Costs {
  double draft = 0.1, each = 0.05;
};

/// Writes a text in which the n-th drafted token is accepted if `is_right(n)`.
template <class IsRight>
Text write(std::int64_t tokens, Costs costs, const IsRight& is_right) {
  DraftLength length;
  Text text;
  while (text.tokens < tokens) {
    const std::int64_t drafted = length.next();
    EXPECT_LE(drafted, DraftLength::kLongest);
    std::int64_t taken = 0;
    while (taken < drafted && is_right(text.drafted + taken)) ++taken;
    const double drafting = costs.draft * static_cast<double>(drafted);
    const double seeing = 1 + costs.each * static_cast<double>(drafted);
    length.update(drafted, taken, drafting + seeing);
    text.seconds += drafting + seeing;
    text.drafted += drafted;
    text.tokens += taken + 1;
  }
  return text;
}

TEST(DraftLength, RightDraftsHelpAndWrongOnesCostLittle) {
  const Text right = write(400, {}, [](std::int64_t) { return true; });
  EXPECT_LT(right.seconds, 400 / 3.0);
  for (const Costs costs : {Costs{}, Costs{0.5, 0.3}, Costs{2, 1}, Costs{0.01, 0}}) {
    const Text wrong = write(800, costs, [](std::int64_t) { return false; });
    EXPECT_LE(wrong.seconds, 1.05 * 800) << costs.draft;
    EXPECT_GT(wrong.drafted, 0);
  }
}

TEST(DraftLength, RecoversWhenDraftsBecomeUseful) {
  const Text late = write(6000, {}, [](std::int64_t n) { return n >= 10; });
  EXPECT_LT(late.seconds, 6000 / 1.5);
  const Text early = write(2000, {}, [](std::int64_t n) { return n < 200; });
  EXPECT_LE(early.seconds, 1.05 * 2000);
}

TEST(DraftLength, DraftsFewerWhenFewAreAccepted) {
  const auto often = write(1000, {}, [](std::int64_t n) { return n % 8 != 0; });
  const auto seldom = write(1000, {}, [](std::int64_t n) { return n % 3 == 0; });
  EXPECT_GT(often.drafted, seldom.drafted);
  EXPECT_LE(seldom.seconds, 1.05 * 1000);
  EXPECT_LT(often.seconds, 1000 / 1.8);
}

}  // namespace
}  // namespace hybrid_trainer
