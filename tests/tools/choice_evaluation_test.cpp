#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// Questions about the continuation of trained_folder()'s text: its next words or different ones.
std::string questions() {
  const std::string text = read_text(trained_folder() / "text.txt");
  std::string lines;
  for (std::size_t i = 0; i < 20; ++i) {
    const std::string prompt = text.substr(11 * i, 6), next = text.substr(11 * i + 6, 3);
    const std::string other = std::string(next.rbegin(), next.rend()) + text.substr(0, 1);
    const boost::json::object line{
        {"prompt", prompt},
        {"choices", i % 2 == 0 ? boost::json::array{next, other} : boost::json::array{other, next}},
        {"answer", static_cast<std::int64_t>(i % 2)}};
    lines += boost::json::serialize(line) + "\n";
  }
  return lines;
}

class ChoiceEvaluationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(trained_folder() / "questions.jsonl", questions());
    fs::remove_all(trained_folder() / "choices_hf");
    in_trained_folder({"export", "run", "--output", "choices_hf"});
    for (const char* name : {"tokenizer.json"})
      if (!fs::exists(trained_folder() / "choices_hf" / name))
        fs::copy(trained_folder() / "data" / name, trained_folder() / "choices_hf");
  }
  static boost::json::object evaluated(std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "run", "--choices", "questions.jsonl", "--json"});
    return only_object(in_trained_folder(more).output);
  }
  static double number(const boost::json::object& object, const char* key) {
    return object.at(key).to_number<double>();
  }
};

TEST_F(ChoiceEvaluationTest, ReportsAccuracyWithStandardError) {
  const auto found = evaluated({});
  EXPECT_EQ(found.at("questions").as_int64(), 20);
  EXPECT_NEAR(number(found, "chance"), 0.5, 1e-12);
  for (const std::string key : {"accuracy", "accuracy_by_bytes"}) {
    const double share = number(found, key.c_str());
    EXPECT_EQ(share * 20, std::round(share * 20));
    EXPECT_NEAR(number(found, (key + "_standard_error").c_str()),
                std::sqrt(share * (1 - share) / 19), 1e-12);
  }
  EXPECT_FALSE(found.contains("against"));
  double right = 0;
  for (const auto& value : found.at("answers").as_array()) {
    const auto& one = value.as_object();
    const auto& likelihoods = one.at("log_likelihoods").as_array();
    const std::size_t chosen = static_cast<std::size_t>(one.at("chosen").as_int64());
    for (const auto& other : likelihoods)
      EXPECT_LE(other.to_number<double>(), likelihoods.at(chosen).to_number<double>());
    right += one.at("chosen") == one.at("answer") ? 1 : 0;
  }
  EXPECT_EQ(right / 20, number(found, "accuracy"));
}

TEST_F(ChoiceEvaluationTest, SameWeightsHaveNoDifference) {
  const auto found = evaluated({"--against", "choices_hf"});
  const auto& base = found.at("against").as_object();
  EXPECT_EQ(number(base, "accuracy"), number(found, "accuracy"));
  const auto& difference = found.at("difference").at("accuracy").as_object();
  for (const char* key : {"mean", "low", "high"}) EXPECT_EQ(number(difference, key), 0) << key;
}

TEST_F(ChoiceEvaluationTest, ReportsDifferenceFromOtherModel) {
  const auto found = evaluated({"--checkpoint", "2", "--against", "run"});
  const auto& difference = found.at("difference").as_object();
  for (const char* key : {"accuracy", "accuracy_by_bytes"}) {
    const auto& interval = difference.at(key).as_object();
    EXPECT_NEAR(number(interval, "mean"),
                number(found, key) - number(found.at("against").as_object(), key), 1e-12);
    EXPECT_LE(number(interval, "low"), number(interval, "mean"));
    EXPECT_GE(number(interval, "high"), number(interval, "mean"));
  }
  const std::string table = in_trained_folder({"eval", "run", "--choices", "questions.jsonl",
                                               "--checkpoint", "2", "--against", "choices_hf"})
                                .output;
  for (const char* part : {"run, step 2", "choices_hf", "difference", "by bytes",
                           "20 questions of 2 choices; chance is 50.0 %"})
    EXPECT_NE(table.find(part), std::string::npos) << table;
}

TEST_F(ChoiceEvaluationTest, RejectsBadLinesAndConflictingOptions) {
  write_text(trained_folder() / "bad.jsonl", questions() + "{\"prompt\": \"x\"}\n");
  const ProcessResult bad = run_hybrid(trained_folder(), {"eval", "run", "--choices", "bad.jsonl"});
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_NE(bad.errors.find("bad.jsonl, line 21: it has no \"choices\""), std::string::npos)
      << bad.errors;
  EXPECT_EQ(run_hybrid(trained_folder(), {"eval", "run", "--choices", "none.jsonl"}).exit_code, 66);
  const auto code = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_hybrid(trained_folder(), arguments).exit_code;
  };
  EXPECT_EQ(code({"--against", "run"}), 64);
  EXPECT_EQ(code({"--choices", "questions.jsonl", "--data", "data"}), 64);
  EXPECT_EQ(code({"--choices", "questions.jsonl", "--sequence-length", "8"}), 64);
}

}  // namespace
}  // namespace hybrid_trainer
