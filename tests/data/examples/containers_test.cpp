#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>

#include "src/data/examples/example_rows.h"
#include "tests/data/examples/rows_fixture.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;
using RowObjects = std::vector<json::object>;

const std::string kExamples = HT_TEST_DATA_DIR "/examples/";

std::string as_lines(const RowObjects& rows) {
  std::string text;
  for (const json::object& row : rows) text += json::serialize(row) + "\n";
  return text;
}

std::string as_array(const RowObjects& rows) {
  return json::serialize(json::array(rows.begin(), rows.end()));
}

std::string as_csv(const RowObjects& rows) {
  std::string text;
  const auto add_line = [&](const std::function<std::string(const json::key_value_pair&)>& cell,
                            const json::object& row) {
    std::string line;
    for (const auto& member : row) {
      std::string quoted;
      for (const char c : cell(member)) quoted += c == '"' ? "\"\"" : std::string(1, c);
      line += (line.empty() ? "\"" : ",\"") + quoted + '"';
    }
    text += line + "\r\n";
  };
  add_line([](const auto& member) { return std::string(member.key()); }, rows.front());
  for (const json::object& row : rows)
    add_line(
        [](const auto& member) {
          return member.value().is_string() ? std::string(member.value().get_string())
                                            : json::serialize(member.value());
        },
        row);
  return text;
}

/// 200 examples in three shapes.
class Containers : public RowsFixture {
 protected:
  Containers() {
    std::ifstream in(kExamples + "alpaca.jsonl");
    for (std::string line; std::getline(in, line);) {
      alpaca_.push_back(json::parse(line).get_object());
      std::string asked(alpaca_.back().at("instruction").get_string());
      const json::string& input = alpaca_.back().at("input").get_string();
      if (!input.empty()) asked += "\n\n" + std::string(input);
      const json::value& output = alpaca_.back().at("output");
      messages_.push_back({{"messages",
                            {{{"role", "user"}, {"content", asked}},
                             {{"role", "assistant"}, {"content", output}}}}});
      shared_.push_back(
          {{"conversations",
            {{{"from", "human"}, {"value", asked}}, {{"from", "gpt"}, {"value", output}}}}});
    }
  }
  void expect_same(const ExampleRows& rows, const ExampleRows& expected, const std::string& name) {
    ASSERT_EQ(rows.rows.size(), 200u) << name;
    EXPECT_TRUE(rows.refused.empty()) << name;
    for (std::size_t i = 0; i < 200; ++i) {
      EXPECT_EQ(rows.rows[i].tokens, expected.rows[i].tokens) << name << " row " << i;
      EXPECT_EQ(rows.rows[i].is_target, expected.rows[i].is_target) << name << " row " << i;
    }
  }
  ExampleRows read_file(const std::filesystem::path& path) const {
    return read_example_rows(path, {.tokenizer = *tokenizer_, .chat = chat_});
  }
  RowObjects alpaca_, messages_, shared_;
};

TEST_F(Containers, AllShapesGiveSameTokensAndTargets) {
  const ExampleRows expected = read_file(folder_.write("expected.jsonl", as_lines(messages_)));
  EXPECT_EQ(expected.rows.size(), 200u);
  int files = 0;
  for (const auto& [shape, rows] :
       {std::pair("messages", &messages_), {"alpaca", &alpaca_}, {"sharegpt", &shared_}}) {
    const std::string name = shape;
    expect_same(read_file(folder_.write(name + ".jsonl", as_lines(*rows))), expected,
                name + " lines");
    expect_same(read_file(folder_.write(name + ".json", as_array(*rows))), expected,
                name + " array");
    expect_same(read_file(folder_.write(name + ".csv", as_csv(*rows))), expected, name + " csv");
    for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
      const std::string file = entry.path().filename();
      if (!file.starts_with(name) || entry.path().extension() != ".parquet") continue;
      const ExampleRows read = read_file(entry.path());
      expect_same(read, expected, file);
      EXPECT_EQ(read.form(), "parquet, 200 rows of " + name);
      ++files;
    }
  }
  EXPECT_EQ(files, 6);
}

}  // namespace
}  // namespace hybrid_trainer
