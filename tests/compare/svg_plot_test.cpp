#include "src/compare/svg_plot.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(SvgPlot, IsEmptyWithoutPoints) {
  EXPECT_EQ(svg_plot({.x_label = "x", .y_label = "y", .x_ticks = {}, .series = {{0, {}, {}, {1}}}}),
            "");
}

TEST(SvgPlot, DrawsPointsInsideFrame) {
  const std::string svg = svg_plot({.x_label = "a < b",
                                    .y_label = "loss",
                                    .x_ticks = {},
                                    .series = {{9, {{0, 1}, {10, 3}}, {{10, 2}}, {5}}}});
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("class=\"c1\""), std::string::npos) << "colors repeat";
  EXPECT_NE(svg.find("d=\"M52.0 "), std::string::npos) << "the smallest x is at the left";
  EXPECT_NE(svg.find("cx=\"546.0\""), std::string::npos) << "the largest x is at the right";
  EXPECT_NE(svg.find("m-4 -4"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SvgPlot, SpacesLogarithmicAxisEvenly) {
  const std::string svg = svg_plot({.x_label = "x",
                                    .y_label = "y",
                                    .logarithmic = true,
                                    .x_ticks = {},
                                    .series = {{0, {}, {{1, 1}, {10, 1}, {100, 1}}, {}}}});
  EXPECT_NE(svg.find("cx=\"299.0\""), std::string::npos) << "10 is in the middle of 1 and 100";
  EXPECT_EQ(svg.find("nan"), std::string::npos) << "equal losses need an axis range";
}

TEST(SvgPlot, OmitsOverlappingLabels) {
  const std::string svg = svg_plot({.x_label = "x",
                                    .y_label = "y",
                                    .x_ticks = {1, 50, 52, 100},
                                    .series = {{0, {{1, 1}, {100, 2}}, {}, {}}}});
  EXPECT_NE(svg.find(">50<"), std::string::npos);
  EXPECT_EQ(svg.find(">52<"), std::string::npos);
  EXPECT_NE(svg.find(">100<"), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
