#include "src/data/examples/class_labels.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Names = std::vector<std::string>;

std::vector<boost::json::value> values_in(const char* list) {
  const boost::json::array array = boost::json::parse(list).as_array();
  return {array.begin(), array.end()};
}

ClassLabels labels_of(const char* list, std::optional<LabelKind> kind = {}, Names names = {}) {
  return ClassLabels(values_in(list), kind, std::move(names));
}

/// The classes or numbers of a label.
std::vector<float> read(const ClassLabels& labels, const char* label) {
  const boost::json::value value = boost::json::parse(label);
  if (labels.kind() != LabelKind::kSingle) return labels.numbers_of(value);
  return {static_cast<float>(labels.class_of(value))};
}

std::string reason(const ClassLabels& labels, const char* label) {
  try {
    read(labels, label);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(ClassLabels, DeterminesKindAndSortedNames) {
  struct Case {
    const char* labels;
    LabelKind kind;
    Names names;
  };
  const std::vector<Case> cases{
      {R"(["spam", null, "ham", "spam"])", LabelKind::kSingle, {"ham", "spam"}},
      {R"([10, 9, 2])", LabelKind::kSingle, {"2", "9", "10"}},
      {R"(["10", "9", "2"])", LabelKind::kSingle, {"2", "9", "10"}},
      {R"([1.0, 0.0])", LabelKind::kSingle, {"0", "1"}},
      {R"([true, false])", LabelKind::kSingle, {"false", "true"}},
      {R"(["1", "nan"])", LabelKind::kSingle, {"1", "nan"}},
      {R"(["1", "a"])", LabelKind::kSingle, {"1", "a"}},
      {R"(["1.0", "0", "1", "0.0"])", LabelKind::kSingle, {"0", "1"}},
      {R"([["b"], [], ["a", "b"]])", LabelKind::kSeveral, {"a", "b"}},
      {R"([[0, 1, 1], [0, 0, 0]])", LabelKind::kSeveral, {"LABEL_0", "LABEL_1", "LABEL_2"}},
      {R"([1, 2.5])", LabelKind::kRegression, {}},
      {R"(["-1", "2.5"])", LabelKind::kRegression, {}}};
  for (const Case& of : cases) {
    const ClassLabels labels = labels_of(of.labels);
    EXPECT_EQ(labels.kind(), of.kind) << of.labels;
    EXPECT_EQ(labels.names(), of.names) << of.labels;
  }
}

TEST(ClassLabels, ReadsEachKind) {
  EXPECT_EQ(read(labels_of(R"(["spam", "ham"])"), R"("spam")"), std::vector<float>{1});
  EXPECT_EQ(read(labels_of("[10, 9, 2]"), "9"), std::vector<float>{1});
  EXPECT_EQ(read(labels_of(R"(["0", "1"])"), R"("1.0")"), std::vector<float>{1});
  EXPECT_EQ(read(labels_of(R"([["b"], ["a", "c"]])"), R"(["c", "a"])"),
            (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(read(labels_of("[[0, 1, 1]]"), "[true, 0, 1]"), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(read(labels_of("[0.5, 2]"), "-2"), std::vector<float>{-2});
  EXPECT_EQ(read(labels_of("[1, 2]", LabelKind::kRegression), R"("3")"), std::vector<float>{3});
}

TEST(ClassLabels, ReadsNamesAndIndicesOfModelsClasses) {
  const ClassLabels labels = labels_of("[1]", {}, {"no", "yes"});
  EXPECT_EQ(read(labels, R"("yes")"), std::vector<float>{1});
  EXPECT_EQ(read(labels, "0"), std::vector<float>{0});
  EXPECT_EQ(read(labels, R"("1")"), std::vector<float>{1}) << "as in CSV";
  expect_words(reason(labels, R"("maybe")"), {"\"maybe\" is not a class", "\"no\", \"yes\""});
  expect_words(reason(labels, "2"), {"2 is not a class", "number from 0 to 1"});
  expect_words(reason(labels, "-1"), {"-1 is not a class"});
  const ClassLabels numbers = labels_of("[1]", {}, {"1", "2"});
  EXPECT_EQ(read(numbers, "1"), std::vector<float>{0}) << "a name, not an index";
  expect_words(reason(numbers, "0"), {"\"0\" is not a class", "\"1\", \"2\""});
  const ClassLabels several = labels_of("[[1, 0]]", {}, {"no", "yes"});
  EXPECT_EQ(read(several, R"(["yes"])"), (std::vector<float>{0, 1}));
  EXPECT_EQ(read(several, "[1, 1]"), (std::vector<float>{1, 1}));
}

TEST(ClassLabels, ReportsReasonForRejectedLabel) {
  const ClassLabels single = labels_of(R"(["a", "b", "b"])");
  expect_words(reason(single, R"(["a"])"), {"[\"a\"]", "want one class"});
  expect_words(reason(single, "1"), {"the label is 1", "most other labels are names"});
  expect_words(reason(single, R"(" ")"), {"empty"});
  expect_words(reason(labels_of("[1, 2]"), R"("x")"), {"most other labels are numbers"});
  expect_words(reason(labels_of("[1, 2]"), "1.5"), {"1.5", "want one class"});
  const ClassLabels lists = labels_of("[[0, 1], [1, 1]]");
  expect_words(reason(lists, "1"), {"the label is 1", "a list with a 0 or 1"});
  expect_words(reason(lists, "[0]"), {"has 1 numbers; want 2"});
  expect_words(reason(lists, "[0, 0.5]"), {"has 0.5; want 0 or 1"});
  expect_words(reason(lists, R"(["a", 1])"), {"has \"a\"; want 0 or 1"});
  expect_words(reason(labels_of(R"([["a"]])"), "[0, 1]"), {"want a list of class names"});
  const ClassLabels numbers = labels_of("[0.5, 2]");
  expect_words(reason(numbers, R"("a")"), {"\"label\" is \"a\"; want a number"});
  expect_words(reason(numbers, R"("nan")"), {"want a finite number"});
  expect_words(reason(numbers, "1e39"), {"want a finite number"});
  expect_words(reason(numbers, "[1]"), {"the label is [1]; want a number"});
}

TEST(ScoreIn, RejectsScoreOutsideRange) {
  EXPECT_EQ(score_in(-1, "score", {-1, 1}), -1);
  EXPECT_EQ(score_in("0.25", "score"), 0.25f);
  try {
    score_in(1.5, "score", {-1, 1});
    FAIL();
  } catch (const DataError& error) {
    expect_words(error.what(), {"\"score\" is 1.5; want a number from -1 to 1"});
  }
}

TEST(ParsedLabel, ReadsListsInTexts) {
  EXPECT_EQ(parsed_label(R"(["a", "b"])"), boost::json::value({"a", "b"}));
  EXPECT_EQ(parsed_label("[odd]"), boost::json::value("[odd]"));
  EXPECT_THROW(parsed_label("['a', 'b']"), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
