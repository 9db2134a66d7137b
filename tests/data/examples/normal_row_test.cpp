#include "src/data/examples/normal_row.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/examples/shaped_row.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

ShapedRow shaped(const std::string& line) {
  return shaped_row(json::parse(line).get_object(), {.has_template = true});
}
NormalRow normal(const std::string& line, const MessageForm& form = {}) {
  std::set<std::string> unused;
  return normal_row(shaped(line).example, form, unused);
}
std::string messages(const std::string& line, const MessageForm& form = {}) {
  return json::serialize(normal(line, form).messages);
}
std::string row_refusal(const std::string& line) {
  return message_of<DataError>([&] { normal(line); });
}
/// Used members of the row, and of its chat if it is one.
std::string used(const std::string& line) {
  std::set<std::string> keys = shaped(line).used, unused;
  keys.merge(normal_row(shaped(line).example, {}, unused).used);
  return join({keys.begin(), keys.end()}, " ");
}

TEST(NormalRow, TreatsNullAndEmptyAsAbsent) {
  EXPECT_EQ(
      normal(R"({"text": "t", "messages": null, "prompt": "p", "completion": null})").completion,
      "t");
  EXPECT_TRUE(normal(R"({"text": "", "messages": [{"role": "user", "content": "a"}]})").is_chat);
  const NormalRow row = normal(
      R"({"messages": [{"role": "assistant", "content": "b", "tool_calls": [], "name": null}],
          "text": null, "tools": []})");
  EXPECT_EQ(json::serialize(row.messages), R"([{"role":"assistant","content":"b"}])");
  EXPECT_TRUE(row.variables.at("tools").is_null());
  EXPECT_EQ(messages(R"({"messages": [{"role": "user", "content": null}]})"),
            R"([{"role":"user","content":""}])");
}

TEST(NormalRow, ParsesToolsAndArgumentsFromJsonText) {
  const NormalRow row = normal(R"({"messages": [{"role": "assistant", "content": "", "tool_calls":
      [{"function": {"name": "f", "arguments": "{\"x\": [1]}"}}, {"name": "g", "arguments": null}]}],
      "tools": "[{\"type\": \"function\"}]"})");
  EXPECT_EQ(json::serialize(row.messages[0].at("tool_calls")),
            R"([{"function":{"name":"f","arguments":{"x":[1]}}},{"name":"g","arguments":{}}])");
  EXPECT_EQ(json::serialize(row.variables.at("tools")), R"([{"type":"function"}])");
  EXPECT_TRUE(row.has_calls());
  expect_words(row_refusal(R"({"messages": [{"role": "user"}], "tools": "get_weather"})"),
               {"tools", "get_weather", "list"});
}

TEST(NormalRow, WritesArgumentsAsTextOnRequest) {
  const std::string line = R"({"messages": [{"role": "assistant", "tool_calls":
      [{"function": {"name": "f", "arguments": {"x": 1, "y": "é"}}}]}]})";
  const json::value function =
      json::parse(messages(line, {.arguments_as_text = true, .null_content_with_calls = true}));
  EXPECT_EQ(function.at(0).at("tool_calls").at(0).at("function").at("arguments"),
            json::value(R"({"x": 1, "y": "é"})"));
  EXPECT_TRUE(function.at(0).at("content").is_null());
}

TEST(NormalRow, JoinsTextPartsOfContent) {
  const std::string line = R"({"messages": [{"role": "user", "content":
      [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]}]})";
  EXPECT_EQ(messages(line), R"([{"role":"user","content":"abc"}])");
  EXPECT_EQ(messages(line, {.content_as_parts = true}),
            R"([{"role":"user","content":[{"type":"text","text":"abc"}]}])");
  expect_words(row_refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
               {"image", "text"});
  expect_words(row_refusal(R"({"messages": [{"role": "user", "content": 5}]})"), {"content", "5"});
}

TEST(NormalRow, AcceptsObjectContentFromToolRoles) {
  for (const char* role : {"tool", "ipython"})
    EXPECT_EQ(normal(concat(R"({"messages": [{"role": ")", role, R"(", "content": {"a": 1}}]})"))
                  .messages[0]
                  .at("content"),
              json::value(json::object{{"a", 1}}));
}

TEST(NormalRow, ReadsShareGptAndAlpaca) {
  EXPECT_EQ(messages(R"({"conversations": [{"from": "human", "value": "a"},
                                           {"from": "gpt", "value": "b"}], "system": "s"})"),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b"}])");
  EXPECT_EQ(messages(R"({"instruction": "Add", "input": "1 1", "output": "2"})"),
            R"([{"role":"user","content":"Add\n\n1 1"},{"role":"assistant","content":"2"}])");
  EXPECT_EQ(messages(R"({"instruction": "Add", "context": "1 1", "response": "2"})"),
            messages(R"({"instruction": "Add", "input": "1 1", "output": "2"})"));
  EXPECT_EQ(messages(R"({"instruction": "Say hi", "input": "", "output": "hi"})"),
            R"([{"role":"user","content":"Say hi"},{"role":"assistant","content":"hi"}])");
}

TEST(NormalRow, AcceptsAlternativeRoleAndTextKeys) {
  EXPECT_EQ(messages(R"({"messages": [{"role": "User", "text": "a"},
                                      {"role": "MODEL", "parts": [{"text": "b"}]},
                                      {"role": "prompter", "content": "c"},
                                      {"role": "ai", "content": "d"}]})"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}])");
  expect_words(row_refusal(R"({"messages": [{"role": "user", "utterance": "a"}]})"),
               {"content", "utterance"});
  EXPECT_EQ(messages(R"({"instruction": "", "input": "Who?", "output": "", "response": "R"})"),
            R"([{"role":"user","content":"Who?"},{"role":"assistant","content":"R"}])");
}

TEST(NormalRow, ParsesMessagesFromJsonText) {
  EXPECT_EQ(messages(R"({"prompt": "[{\"role\": \"user\", \"content\": \"a\"}]",
                         "completion": " [{\"from\": \"gpt\", \"value\": \"b\"}]"})"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(normal(R"({"prompt": "[1]", "completion": "[{\"a\": 1}]"})").completion,
            R"([{"a": 1}])");
  for (const char* key : {"messages", "prompt"})
    expect_words(row_refusal(concat(R"({")", key, R"(": "[{'role': 'user', 'content': 'a'}]",)",
                                    R"( "completion": "b"})")),
                 {"Python", "json.dumps"});
}

TEST(NormalRow, ReadsLegacyFunctionCalls) {
  const NormalRow row = normal(R"({"messages": [{"role": "assistant", "content": null,
      "function_call": {"name": "f", "arguments": "{}"}}, {"role": "function", "name": "f",
      "content": "x"}], "functions": [{"name": "f"}]})");
  EXPECT_EQ(json::serialize(row.messages[0].at("tool_calls")),
            R"([{"type":"function","function":{"name":"f","arguments":{}}}])");
  EXPECT_EQ(row.messages[1].at("role"), json::value("tool"));
  EXPECT_EQ(json::serialize(row.variables.at("tools")),
            R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(NormalRow, EmptyFunctionsGiveNoTools) {
  for (const char* none : {"\"\"", "\"[]\"", "[]", "null"}) {
    const std::string row =
        concat(R"({"messages": [{"role": "user", "content": "a"}], "functions": )", none, "}");
    EXPECT_TRUE(normal(row).variables.at("tools").is_null()) << none;
  }
}

TEST(NormalRow, ReadsToolCallsGivenAsTurns) {
  const NormalRow row = normal(R"({"conversations": [
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
      {"from": "observation", "value": "y"}],
      "tools": "[{\"name\": \"f\", \"parameters\": \"{\\\"type\\\": 1}\"}]"})");
  EXPECT_EQ(json::serialize(row.messages[0]),
            R"({"role":"assistant","content":"","tool_calls":[{"type":"function",)"
            R"("function":{"name":"f","arguments":{"x":1}}}]})");
  EXPECT_EQ(row.messages[1].at("role"), json::value("tool"));
  EXPECT_EQ(json::serialize(row.variables.at("tools")),
            R"([{"name":"f","parameters":{"type":1}}])");
  expect_words(row_refusal(R"({"conversations": [{"from": "function_call", "value": "f of 1"}]})"),
               {"function_call", "JSON"});
}

TEST(NormalRow, MarksTargetTurns) {
  const NormalRow row = normal(R"({"messages": [{"role": "assistant", "weight": 0},
      {"role": "assistant", "train": true}, {"role": "assistant", "loss_mask": 0}]})");
  EXPECT_EQ(row.trains, (std::vector<bool>{false, true, false}));
  EXPECT_FALSE(row.messages[0].get_object().contains("weight"));
  expect_words(row_refusal(R"({"messages": [{"role": "assistant", "train": "no"}]})"),
               {"train", "no"});
}

TEST(NormalRow, ReportsUsedMembers) {
  constexpr std::pair<const char*, const char*> kRows[] = {
      {R"({"messages": [{"role": "user"}], "images": ["a"], "videos": null, "tools": [{}]})",
       "messages tools"},
      {R"({"prompt": "p", "completion": "c", "system": "s", "tools": [{}]})", "completion prompt"},
      {R"({"prompt": [{"role": "user"}], "completion": "c", "system": "s"})",
       "completion prompt system"},
      {R"({"instruction": "i", "input": "", "context": "c", "output": "o", "response": "r"})",
       "context input instruction output"},
      {R"({"instruction": "i", "input": "n", "context": "c", "output": "o", "system": "s"})",
       "input instruction output system"},
      {R"({"messages": [{"role": "system", "content": "a"}], "system": "b"})", "messages"},
      {R"({"question": "q", "chosen": "ab", "rejected": "ac"})", "chosen rejected"}};
  for (const auto& [row, wanted] : kRows) EXPECT_EQ(used(row), wanted) << row;
}

TEST(NormalRow, ConvertsScalarsToText) {
  EXPECT_EQ(messages(R"({"instruction": "Add", "input": 17, "output": 1.5})"),
            R"([{"role":"user","content":"Add\n\n17"},{"role":"assistant","content":"1.5"}])");
  EXPECT_EQ(normal(R"({"prompt": "p", "completion": true})").completion, "true");
  for (const char* input : {"[1]", "{\"a\": 1}"})
    expect_words(
        row_refusal(concat(R"({"instruction": "i", "output": "o", "input": )", input, "}")),
        {"input", "want a string"});
}

TEST(NormalRow, ErrorsNameExpectedKeys) {
  expect_words(row_refusal(R"({"question": "q", "answer": "a"})"),
               {"question", "answer", "messages", "completion"});
  expect_words(row_refusal(R"({"prompt": "q", "completion": null})"),
               {"empty values for \"completion\""});
  expect_words(row_refusal(R"({"text": "t", "messages": [{"role": "user"}]})"), {"two shapes"});
}

}  // namespace
}  // namespace hybrid_trainer
