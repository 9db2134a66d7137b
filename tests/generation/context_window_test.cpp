#include "hybrid_trainer/generation/cached_decoder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::vector<std::int32_t> counting(std::int64_t tokens) {
  std::vector<std::int32_t> text(static_cast<std::size_t>(tokens));
  std::iota(text.begin(), text.end(), 0);
  return text;
}

TEST(ContextWindow, KeepsPinnedTokensAndEnd) {
  const ContextWindow window(10, 2);
  EXPECT_EQ(window.of(counting(10)), counting(10));
  EXPECT_EQ(window.of(counting(11)), (std::vector<std::int32_t>{0, 1, 7, 8, 9, 10}));
  EXPECT_EQ(window.of(counting(12)), (std::vector<std::int32_t>{0, 1, 7, 8, 9, 10, 11}));
}

TEST(ContextWindow, DropsSameTokensInOneOrManySteps) {
  for (const std::int64_t context : {1, 2, 3, 8, 9, 64}) {
    for (const std::int64_t pinned : {0, 1, 5, 100}) {
      const ContextWindow window(context, pinned);
      EXPECT_LE(window.pinned(), context / 2);
      std::vector<std::int32_t> grown;
      for (std::int32_t token = 0; token < 200; ++token) {
        grown.push_back(token);
        grown = window.of(grown);  // drops tokens once the text is too long
        EXPECT_EQ(window.of(counting(token + 1)), grown) << context << " " << pinned;
        EXPECT_LE(std::ssize(grown), context);
      }
    }
  }
}

TEST(ContextWindow, PromptLeavesRoomForNewTokens) {
  const ContextWindow window(10, 2);
  EXPECT_EQ(fit_prompt(counting(10), window, 5, ContextOverflow::kTruncate).left_out, 0);
  const FittedPrompt fitted = fit_prompt(counting(20), window, 3, ContextOverflow::kTruncate);
  EXPECT_EQ(fitted.left_out, 13);
  EXPECT_EQ(fitted.tokens, (std::vector<std::int32_t>{0, 1, 15, 16, 17, 18, 19}));
  EXPECT_EQ(std::ssize(fit_prompt(counting(20), window, 90, ContextOverflow::kTruncate).tokens), 6)
      << "the length of a text that has just outgrown the context";
}

TEST(ContextWindow, ErrorModeRejectsOverflow) {
  const ContextWindow window(10, 2);
  EXPECT_EQ(fit_prompt(counting(10), window, 90, ContextOverflow::kError).tokens, counting(10));
  const std::string message =
      message_of<DataError>([&] { fit_prompt(counting(11), window, 1, ContextOverflow::kError); });
  EXPECT_TRUE(contains(message, "11 tokens"));
  EXPECT_TRUE(contains(message, "context is 10"));
  EXPECT_TRUE(contains(message, "--context-overflow truncate"));
  check_overflow(10, window, ContextOverflow::kError);
  check_overflow(11, window, ContextOverflow::kTruncate);
  EXPECT_THROW(check_overflow(11, window, ContextOverflow::kError), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
