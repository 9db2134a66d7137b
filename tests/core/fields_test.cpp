#include "hybrid_trainer/core/fields.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

struct Inner {
  double share = 0.5;
  std::vector<double> betas{0.9, 0.95};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"share", self.share, "", Range::fraction()});
    visit(Field{"betas", self.betas, "", Range::fraction()});
  }
};

struct Outer {
  std::int64_t steps = 10;
  bool on = true;
  std::string name = "adamw";
  Inner inner;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"steps", self.steps, "", Range::at_least(1)});
    visit(Field{"on", self.on, ""});
    visit(Field{"name", self.name, "", Range{}, {"adamw", "sgd"}});
    visit(Field{"inner", self.inner, ""});
  }
};

std::vector<std::string> problems_of(const Outer& config, const std::string& path = "") {
  std::vector<std::string> problems;
  collect_range_problems(config, path, problems);
  return problems;
}

TEST(Range, ContainsClosedEndsButNotNaN) {
  EXPECT_TRUE(Range::between(0, 1).contains(1));
  EXPECT_FALSE(Range::fraction().contains(1));
  EXPECT_TRUE(Range::fraction().contains(0));
  EXPECT_FALSE(Range::above(0).contains(0));
  EXPECT_FALSE(Range::between(0, 1).contains(std::nan("")));
  EXPECT_FALSE(Range{}.contains(std::nan("")));
}

TEST(Range, PrintsAsInterval) {
  EXPECT_EQ(Range::fraction().text(), "[0, 1)");
  EXPECT_EQ(Range::above(0).text(), "(0, inf)");
  EXPECT_EQ(Range::between(1, 65536).text(), "[1, 65536]");
  EXPECT_EQ(Range{}.text(), "(-inf, inf)");
}

TEST(CollectRangeProblems, IsEmptyForValidConfig) { EXPECT_TRUE(problems_of(Outer{}).empty()); }

TEST(CollectRangeProblems, ReportsPathValueAndRangeOfInvalidFields) {
  Outer config;
  config.steps = 0;
  config.name = "adam";
  config.inner.share = 1;
  config.inner.betas = {0.9, 1.5};
  EXPECT_EQ(problems_of(config),
            (std::vector<std::string>{"steps: got 0, want a number in [1, inf)",
                                      "name: got \"adam\"; did you mean adamw?",
                                      "inner.share: got 1, want a number in [0, 1)",
                                      "inner.betas: got 1.5, want a number in [0, 1)"}));
}

TEST(CollectRangeProblems, RefusesNaN) {
  Outer config;
  config.inner.share = std::nan("");
  EXPECT_EQ(problems_of(config, "training"),
            (std::vector<std::string>{"training.inner.share: got nan, want a number in [0, 1)"}));
}

}  // namespace
}  // namespace hybrid_trainer
