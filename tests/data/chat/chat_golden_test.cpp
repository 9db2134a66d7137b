#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

const json::object& golden() {
  static const json::object content = [] {
    std::ifstream file(HT_TEST_DATA_DIR "/chat_golden.json");
    return json::parse(std::string{std::istreambuf_iterator<char>(file), {}}).as_object();
  }();
  return content;
}

/// The variables that jinja2 was given in this case.
json::object variables_of(const json::object& value) {
  json::object variables = golden().at("variables").as_object();
  if (!value.contains("chat")) return variables;
  variables["messages"] = golden().at("chats").at(value.at("chat").to_number<std::size_t>());
  const auto& more = golden().at("more").at(value.at("more").to_number<std::size_t>());
  for (const auto& [key, entry] : more.as_object()) variables[key] = entry;
  return variables;
}

/// Returns the text and the generated spans as JSON, or "refused" for both.
std::pair<std::string, std::string> rendered(const json::object& value) {
  const bool is_named = value.contains("template");
  const json::value& source =
      is_named ? golden().at("templates").at(value.at("template").as_string()) : value.at("source");
  try {
    const ChatTemplate chat_template(std::string(source.as_string()), "template");
    const RenderedChat chat =
        chat_template.render(variables_of(value), golden().at("now").as_int64());
    json::array spans;
    for (const auto& span : chat.generated) spans.push_back(json::array{span.begin, span.end});
    return {chat.text, json::serialize(spans)};
  } catch (const DataError&) {
    return {"refused", "refused"};
  }
}

TEST(ChatGolden, TextsAndSpansMatchJinja2) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const json::array& cases = golden().at("cases").as_array();
  ASSERT_GE(cases.size(), 250u);
  for (const json::value& one : cases) {
    const json::object& value = one.as_object();
    const auto [text, spans] = rendered(value);
    const bool refused = value.contains("refused");
    EXPECT_EQ(text, refused ? "refused" : value.at("text").as_string()) << json::serialize(value);
    EXPECT_EQ(spans, refused ? "refused" : json::serialize(value.at("generated")))
        << json::serialize(value);
  }
}

}  // namespace
}  // namespace hybrid_trainer
