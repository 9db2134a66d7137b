#include "src/data/chat/evaluation.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

/// Renders messages with contents "a", "b", "c" and returns the text's parts as "number:text".
std::string parts(const std::string& source) {
  json::array messages;
  for (const char* content : {"a", "b", "c"})
    messages.push_back(json::object{{"content", content}});
  const RenderedChat chat =
      ChatTemplate(source, "t").render({{"messages", std::move(messages)}}, 0);
  std::string text;
  for (const auto& [message, span] : chat.parts)
    text +=
        std::to_string(message) + ":" + chat.text.substr(span.begin, span.end - span.begin) + " ";
  return text;
}

TEST(MessageParts, LoopIterationBelongsToItsMessage) {
  EXPECT_EQ(parts("x{% for m in messages %}<{{ m.content }}>{% endfor %}y"), "0:<a> 1:<b> 2:<c> ");
  EXPECT_EQ(
      parts("{% set rest = messages[1:] %}{% for m in rest | list %}{{ m.content }}{% endfor %}"),
      "1:b 2:c ");
  EXPECT_EQ(parts("{% for m in messages[::-1] if m.content != 'b' %}{{ m.content }}{% endfor %}"),
            "2:c 0:a ");
}

TEST(MessageParts, EmptyIterationsHaveNoPart) {
  EXPECT_EQ(
      parts("{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}"),
      "2:c ");
  EXPECT_EQ(parts("{% for m in messages[::-1] %}{% set last = m %}{% endfor %}"), "");
}

TEST(MessageParts, IndexedIterationBelongsToReadMessage) {
  EXPECT_EQ(parts("{% for i in range(messages | length) %}<{{ messages[i].content }}>{% endfor %}"),
            "0:<a> 1:<b> 2:<c> ");
  EXPECT_EQ(parts("{% for i in range(1, 3) %}{% set before = messages[i - 1] %}"
                  "{% set m = messages[i] %}{{ before.content }}{{ m.content }}{% endfor %}"),
            "1:ab 2:bc ");
}

TEST(MessageParts, InnerLoopPartsBelongToInnerMessages) {
  EXPECT_EQ(parts("{% for m in messages[:1] %}({{ m.content }}{% for k in range(1, 3) %}"
                  "{% set other = messages[k] %}[{{ other.content }}]{% endfor %}){% endfor %}"),
            "1:[b] 2:[c] 0:(a[b][c]) ");
}

/// No value that the template creates may reuse the address of a dropped message.
TEST(MessageParts, DroppedMessagesAreKeptAlive) {
  EXPECT_EQ(
      parts("{% set messages = messages[2:] %}{% for x in [{'content': 'x'}, {'content': 'y'}, "
            "{'content': 'z'}] %}{{ x.content }}{% endfor %}"
            "{% for m in messages %}{{ m.content }}{% endfor %}"),
      "2:c ");
}

TEST(MessageParts, CapturedTextHasNoPart) {
  EXPECT_EQ(parts("{% set all %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}"
                  "{{ all }}"),
            "");
  EXPECT_EQ(parts("{% macro one(m) %}{% for x in [m] %}{{ x.content }}{% endfor %}{% endmacro %}"
                  "{% for m in messages %}{{ one(m) }}{% endfor %}"),
            "0:a 1:b 2:c ");
}

}  // namespace
}  // namespace hybrid_trainer
