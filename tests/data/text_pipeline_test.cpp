#include "src/data/text_pipeline.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

using Kind = NormalizerStep::Kind;

TEST(TextPipeline, RefusesStepsThatMakeFarMoreOfAText) {
  const TextPipeline doubling(std::vector<NormalizerStep>(40, {Kind::kReplace, "a", "aa"}), {});
  EXPECT_THROW(doubling.normalized("cat", {}), DataError) << "a terabyte";
  EXPECT_EQ(doubling.normalized("dog", {}), "dog");
  EXPECT_THROW(replace_all(std::string(1000, ' '), " ", std::string(100'000, 'x')), DataError);
  EXPECT_EQ(replace_all("a b", " ", std::string(100'000, 'x')).size(), 100'002u);
}

TEST(TextPipeline, RefusesMoreStepsThanAnyTokenizerHas) {
  EXPECT_THROW(TextPipeline(std::vector<NormalizerStep>(257, {Kind::kNfc, "", ""}), {}), DataError);
  EXPECT_THROW(TextPipeline({}, std::vector<PreTokenizerStep>(257)), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
