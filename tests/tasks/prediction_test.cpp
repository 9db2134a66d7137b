#include "src/tasks/prediction.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"

namespace hybrid_trainer {
namespace {

const std::vector<ClassLabel> kLabels{{"a"}, {"b"}};

TEST(Prediction, NumbersHaveTheFewestDigitsOfTheirF32) {
  EXPECT_EQ(json_line(decimals(std::vector<float>{0.1f, -2.5f, 1e-20f})), "[0.1,-2.5,1e-20]");
}

TEST(Prediction, ClassesHaveTheSoftmaxOfTheirLogits) {
  // 1/(1 + e⁻²) and its complement; large logits do not overflow.
  for (const float shift : {0.0f, 1000.0f}) {
    const boost::json::object found =
        class_fields(std::vector<float>{shift - 1, shift + 1}, kLabels);
    EXPECT_EQ(found.at("label"), "b");
    EXPECT_NEAR(found.at("score").as_double(), 0.8807970779778823, 1e-7);
    EXPECT_NEAR(found.at("scores").at("a").as_double(), 0.11920292202211755, 1e-7);
    EXPECT_EQ(found.at("scores").at("b"), found.at("score"));
  }
}

TEST(Prediction, LabelsHaveTheSigmoidOfTheirLogit) {
  const boost::json::object found = label_fields(std::vector<float>{2, -2}, kLabels);
  EXPECT_EQ(json_line(found.at("labels")), "[\"a\"]");
  EXPECT_NEAR(found.at("scores").at("a").as_double(), 0.8807970779778823, 1e-7);
  EXPECT_NEAR(found.at("scores").at("b").as_double(), 0.11920292202211755, 1e-7);
}

TEST(Prediction, NeedsAnOutputForEachClass) {
  EXPECT_THROW(class_fields(std::vector<float>{1, 2, 3}, kLabels), ShapeMismatch);
  EXPECT_THROW(label_fields(std::vector<float>{1}, kLabels), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer
