#include "src/data/text/text_pipeline.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using Kind = NormalizerStep::Kind;

std::string normalized(const TextPipeline& pipeline, std::string_view text) {
  PiecePlace place;
  return pipeline.normalized(text, place);
}

TEST(TextPipeline, RejectsStepsThatGrowTextExcessively) {
  const TextPipeline doubling(
      std::vector<NormalizerStep>(40, {.kind = Kind::kReplace, .pattern = "a", .content = "aa"}),
      {});
  EXPECT_THROW(normalized(doubling, "cat"), DataError) << "a terabyte";
  EXPECT_EQ(normalized(doubling, "dog"), "dog");
  EXPECT_THROW(replace_all(std::string(1000, ' '), " ", std::string(100'000, 'x')), DataError);
  EXPECT_EQ(replace_all("a b", " ", std::string(100'000, 'x')).size(), 100'002u);
}

/// Takes an hour if the marks of the long text are sorted by swapping neighbors.
TEST(TextPipeline, ComposesManyCombiningMarksInOrder) {
  const TextPipeline composing({{.kind = Kind::kNfc}}, {});
  EXPECT_EQ(normalized(composing, "a\u0301\u0316 e\u0316\u0301 \u1100\u1161"),
            "\u00E1\u0316 \u00E9\u0316 \uAC00");
  std::string marks = "a", below, above;
  for (int i = 0; i < 200'000; ++i) {
    marks += "\u0301\u0316";
    below += "\u0316";
    above += i == 0 ? "" : "\u0301";
  }
  EXPECT_TRUE(normalized(composing, marks) == "\u00E1" + below + above);
}

}  // namespace
}  // namespace hybrid_trainer
