#include "src/run/text_score.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {
namespace {

/// Makes outputs with `width` numbers per text, for examples with these numbers of texts.
TextOutputs outputs_of(const std::vector<float>& values, std::int64_t width,
                       const std::vector<TextRow>& rows) {
  const Stream host(MemoryPool::create("host"));
  TextOutputs outputs;
  std::int64_t texts = 0;
  for (const TextRow& row : rows) {
    outputs.first.push_back(texts);
    texts += std::ssize(row.ends);
  }
  outputs.values = Tensor::empty({texts, width}, DType::kF32, MemoryKind::kData, host);
  EXPECT_EQ(std::ssize(values), texts * width);
  std::ranges::copy(values, outputs.values.data<float>());
  return outputs;
}

TextRow row_of(std::int64_t texts, std::vector<float> labels = {}) {
  TextRow row;
  row.ends.resize(static_cast<std::size_t>(texts), 1);
  row.labels = std::move(labels);
  return row;
}

double value_of(const TextScore& score, const std::string& key, std::int64_t channels = 0) {
  for (const TextScore::Measure& measure : score.measures)
    if (measure.key == key && measure.channels == channels) return measure.value.value();
  ADD_FAILURE() << "no measure " << key;
  return 0;
}

HybridTrainerConfig config_of(const std::string& objective, const std::string& labels = "auto") {
  HybridTrainerConfig config;
  config.objective = objective;
  config.texts.labels = labels;
  return config;
}

// Expected values of classes, labels and numbers: scikit-learn 1.9.1 (accuracy_score, f1_score,
// precision_recall_fscore_support, confusion_matrix, mean_squared_error) and scipy 1.17.1.

TEST(TextScore, ScoresOneClassAsScikitLearn) {
  HybridTrainerConfig config = config_of("classify", "single");
  config.model.labels = {{"a"}, {"b"}, {"c"}, {"none"}};
  std::vector<TextRow> rows;
  for (const std::int32_t actual : {0, 1, 0, 1, 0, 2, 2}) {
    rows.push_back(row_of(1));
    rows.back().class_index = actual;
  }
  const TextScore score = text_score(outputs_of({2, 1, 0, -3, 0, 1, 0.5, 0, 1, 0.5, 2, 0, 0, 3,
                                                 1, 2, 5, 1,  1, 4, 0,   0, 1, 0.5, 1, 2, 0, 0},
                                                4, rows),
                                     rows, config);
  EXPECT_NEAR(value_of(score, "accuracy"), 5.0 / 7, 1e-15);
  EXPECT_NEAR(value_of(score, "macro_f1"), 0.7, 1e-15);
  EXPECT_EQ(score.text(),
            "accuracy 0.71429 (95 % interval 0.359 to 0.918), macro F1 0.7 over 7 examples");
  EXPECT_EQ(score.confusion->text(),
            "        0  1  2  3  <- predicted\n"
            "0 a     2  0  1  0\n"
            "1 b     0  2  0  0\n"
            "2 c     0  1  1  0\n"
            "3 none  0  0  0  0");
  EXPECT_EQ(score.confusion->text(2),
            "     0  1  <- predicted\n"
            "0 a  2  0\n"
            "1 b  0  2\n"
            "2 classes with fewer examples are not shown; --json has all");
  const boost::json::object json = score.json();
  EXPECT_EQ(boost::json::serialize(json.at("confusion")),
            "[[2,0,1,0],[0,2,0,0],[0,1,1,0],[0,0,0,0]]");
  const boost::json::object& second = json.at("classes").at(1).as_object();
  EXPECT_NEAR(second.at("precision").as_double(), 2.0 / 3, 1e-15);
  EXPECT_EQ(second.at("recall").as_double(), 1);
  EXPECT_NEAR(second.at("f1").as_double(), 0.8, 1e-15);
  EXPECT_EQ(json.at("examples"), 7);
}

TEST(TextScore, ScoresSeveralLabelsAsScikitLearn) {
  const std::vector<TextRow> rows{row_of(1, {1, 0, 1}), row_of(1, {0, 1, 0}), row_of(1, {1, 1, 0}),
                                  row_of(1, {0, 0, 0}), row_of(1, {0, 1, 0})};
  const TextOutputs outputs =
      outputs_of({1, -1, -0.5f, -2, 3, 0.5f, 0.25f, 1, -1, -1, -1, -2, -1, 0.5f, -3}, 3, rows);
  const TextScore score = text_score(outputs, rows, config_of("classify", "several"));
  EXPECT_NEAR(value_of(score, "micro_f1"), 5.0 / 6, 1e-15);
  EXPECT_NEAR(value_of(score, "macro_f1"), 2.0 / 3, 1e-15);
  EXPECT_NEAR(value_of(score, "exact_match"), 0.6, 1e-15);
}

TEST(TextScore, ScoresNumbersAsScikitLearn) {
  const std::vector<TextRow> rows{row_of(1, {1}), row_of(1, {1.5f}), row_of(1, {-0.5f}),
                                  row_of(1, {2}), row_of(1, {5})};
  const TextScore score = text_score(outputs_of({0.5f, 1.25f, -1, 2.5f, 3}, 1, rows), rows,
                                     config_of("classify", "regression"));
  EXPECT_NEAR(value_of(score, "mean_squared_error"), 0.9625, 1e-12);
  EXPECT_NEAR(value_of(score, "pearson"), 0.8993675766931355, 1e-12);
  EXPECT_NEAR(value_of(score, "spearman"), 1, 1e-12);
}

TEST(TextScore, FindsPositivesAmongAllOtherTexts) {
  HybridTrainerConfig config = config_of("embed");
  config.texts.dimensions = "1,2";
  const std::vector<TextRow> rows{row_of(2), row_of(3)};
  // Anchors (1, 0) and (0, 1); the third candidate is the second row's negative.
  const TextOutputs outputs = outputs_of({1, 0, 3, 1, 0, 1, 1, 2, 0, 5}, 2, rows);
  const TextScore score = text_score(outputs, rows, config);
  EXPECT_EQ(value_of(score, "accuracy@1"), 0.5);
  EXPECT_EQ(value_of(score, "mrr"), 0.75);
  // In the first channel, the anchors are 1 and 0, and the candidates 1, 1 and 0: of two candidates
  // that are equally near to the first anchor, and of three to the second, one is right.
  EXPECT_NEAR(value_of(score, "accuracy@1", 1), (1.0 / 2 + 1.0 / 3) / 2, 1e-15);
  EXPECT_NEAR(value_of(score, "mrr", 1), (3.0 / 4 + 11.0 / 18) / 2, 1e-15);
  EXPECT_EQ(score.measures.size(), 4u) << "2 channels are all channels";
  EXPECT_EQ(score.json().at("dimensions").at("1").at("mrr").as_double(), value_of(score, "mrr", 1));
}

TEST(TextScore, CorrelatesCosinesWithScores) {
  const std::vector<TextRow> rows{row_of(2, {0.9f}), row_of(2, {0.5f}), row_of(2, {0.1f})};
  // Cosines 1, 0.6 and 0.
  const TextOutputs outputs = outputs_of({2, 0, 7, 0, 1, 0, 3, 4, 0, 2, 9, 0}, 2, rows);
  const TextScore score = text_score(outputs, rows, config_of("embed"));
  EXPECT_NEAR(value_of(score, "spearman"), 1, 1e-12);
  EXPECT_NEAR(value_of(score, "pearson"), 0.9933992677987828, 1e-6);
}

TEST(TextScore, ScoresRanksByTheirLabels) {
  std::vector<TextRow> rows{row_of(1, {1}), row_of(1, {0}), row_of(1, {1}), row_of(1, {0})};
  const TextOutputs outputs = outputs_of({3, 2, 1, 0}, 1, rows);
  const TextScore score = text_score(outputs, rows, config_of("rank"));
  EXPECT_EQ(value_of(score, "roc_auc"), 0.75);
  EXPECT_NEAR(value_of(score, "average_precision"), 5.0 / 6, 1e-15);
  rows[0].labels = {2};
  EXPECT_NEAR(value_of(text_score(outputs, rows, config_of("rank")), "spearman"), std::sqrt(0.4),
              1e-12);
  for (TextRow& row : rows) row.labels = {1};
  const TextScore none = text_score(outputs, rows, config_of("rank"));
  EXPECT_EQ(none.text(), "area under the ROC curve undefined, average precision 1 over 4 examples");
  EXPECT_TRUE(none.json().at("roc_auc").is_null());
}

TEST(TextScore, RewardsNeedAHigherScoreForTheChosenText) {
  const std::vector<TextRow> rows{row_of(2), row_of(2), row_of(2)};
  const TextScore score =
      text_score(outputs_of({3, 1, 0, 0, -1, -1.5f}, 1, rows), rows, config_of("reward"));
  EXPECT_NEAR(value_of(score, "accuracy"), 2.0 / 3, 1e-15) << "equal scores are wrong";
  EXPECT_NEAR(value_of(score, "margin"), 2.5 / 3, 1e-12);
}

TEST(TextScore, RefusesOutputsThatLabelsDoNotFit) {
  const std::vector<TextRow> rows{row_of(1, {1, 0, 1})};
  EXPECT_THROW(text_score(outputs_of({1, 2}, 2, rows), rows, config_of("classify", "several")),
               ShapeMismatch);
  EXPECT_THROW(text_score(outputs_of({1, 2}, 2, rows), rows, config_of("rank")), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer
