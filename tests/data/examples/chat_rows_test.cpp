#include "src/data/examples/row_tokens.h"

#include <gtest/gtest.h>

#include <ctime>

#include "hybrid_trainer/core/error.h"
#include "tests/data/examples/rows_fixture.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

/// A template like Qwen3's, which writes only the last answer's reasoning.
constexpr const char* kThinking =
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{{- '<' + m.role + '>' }}"
    "{%- set text = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{- '<think>' + (m.reasoning_content or '') + '</think>' }}{%- endif %}"
    "{{- text + '<|endoftext|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}";

class ChatRowsTest : public RowsFixture {
 protected:
  std::string chat(const std::string& messages, const std::string& more = "") const {
    return only_row(R"({"messages": [)" + messages + "]" + more + "}");
  }
};

std::string user(const std::string& text) {
  return R"({"role": "user", "content": ")" + text + "\"}";
}
std::string assistant(const std::string& text, const std::string& more = "") {
  return R"({"role": "assistant", "content": ")" + text + "\"" + more + "}";
}

TEST_F(ChatRowsTest, TrainsOnEveryAnswerOfThinkingTemplate) {
  set_template(kThinking);
  EXPECT_EQ(chat(user("a") + "," + assistant("b", R"(, "reasoning_content": "r")") + "," +
                 user("c") + "," + assistant("d", R"(, "reasoning_content": "s")")),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]<user>c<|endoftext|><assistant>"
            "[<think>s</think>d<|endoftext|>]");
  EXPECT_EQ(chat(user("a") + "," + assistant("<think>r</think>\\n\\nb") + "," + user("c") + "," +
                 assistant("d")),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]<user>c<|endoftext|><assistant>"
            "[<think></think>d<|endoftext|>]");
}

TEST_F(ChatRowsTest, IgnoresUnwrittenThinkTagInPrompt) {
  set_template(
      "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}<|endoftext|>"
      "{% endfor %}{% if add_generation_prompt %}<assistant><think>\n{% endif %}");
  EXPECT_EQ(chat(user("a") + "," + assistant("b")),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]");
  EXPECT_EQ(only_row(R"({"prompt": [)" + user("a") + R"(], "completion": [)" +
                     assistant("<think>r</think>b") + "]}"),
            "<user>a<|endoftext|><assistant>[b<|endoftext|>]");
}

TEST_F(ChatRowsTest, TrailingTokenBelongsToLastAnswer) {
  set_template(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% else %}<|endoftext|>{% endif %}");
  EXPECT_EQ(chat(user("a") + "," + assistant("b") + "," + user("c") + "," + assistant("d")),
            "<user>a;<assistant>[b;]<user>c;<assistant>[d;<|endoftext|>]");
}

TEST_F(ChatRowsTest, DoesNotTrainOnToolOutputInsideAnswer) {
  set_template(
      "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}"
      "{% for k in range(loop.index0 + 1, messages | length) %}{% set other = messages[k] %}"
      "{% if other.role == 'tool' %}({{ other.content }}){% endif %}{% endfor %};"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_EQ(chat(assistant("b") + R"(, {"role": "tool", "content": "t"})"), "<assistant>[b](t)[;]");
}

TEST_F(ChatRowsTest, CapturedLoopIsRenderedTurnByTurn) {
  set_template(
      "{% set text %}{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% endset %}"
      "{{ text }}{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_EQ(chat(user("a") + "," + assistant("b") + "," + user("c")),
            "<user>a;<assistant>[b;]<user>c;");
}

TEST_F(ChatRowsTest, RejectsAnswerThatIsWrittenTwice) {
  set_template(
      "{% for m in messages %}{{ m.content }}{% endfor %}|{% for m in messages %}"
      "{{ m.content }}{% endfor %}");
  expect_words(only_reason(R"({"messages": [)" + user("a") + "," + assistant("b") + "]}"),
               {"no target tokens", "template", "located"});
}

TEST_F(ChatRowsTest, DoesNotTrainOnExcludedTurns) {
  for (const char* key : {R"("weight": 0)", R"("train": false)", R"("trainable": false)"}) {
    EXPECT_EQ(chat(user("a") + "," + assistant("b", std::string(", ") + key) + "," + user("c") +
                   "," + assistant("d", R"(, "weight": 1)")),
              "<user>a<|endoftext|><assistant>b<|endoftext|><user>c<|endoftext|><assistant>"
              "[d<|endoftext|>]");
  }
  set_template(
      "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_EQ(chat(assistant("b", R"(, "weight": 0)") + "," + assistant("d")),
            "assistant:b;assistant:[d;]");
  expect_words(only_reason(R"({"messages": [)" + assistant("b", R"(, "weight": 0.5)") + "]}"),
               {"weight", "0.5"});
}

TEST_F(ChatRowsTest, WritesToolCallsInTemplateForm) {
  const std::string call =
      R"(, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}])";
  const std::string head = "{% for m in messages %}{{ m.role }}:{% for c in m.tool_calls %}";
  const std::string tail =
      ";{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
  const std::string wanted = "user:assistant:[f{\"x\": 1};]";
  set_template(head + "{{ c.function.name }}{{ c.function.arguments | tojson }}" + tail);
  EXPECT_EQ(chat(user("a") + "," + assistant("", call)), wanted);
  set_template(head + "{{ c.function.name + c.function.arguments }}" + tail);
  EXPECT_EQ(chat(user("a") + "," + assistant("", call)), wanted);
  set_template(
      "{% for m in messages %}{{ m.role }}:{% if m.content is none %}"
      "{{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}{% endif %};{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}");
  EXPECT_EQ(chat(user("a") + "," + assistant("", call)), "user:a;assistant:[f;]");
}

TEST_F(ChatRowsTest, ParsesTextArgumentsLikePython) {
  set_template(
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}"
      "{{ c.function.arguments | tojson }}{% endfor %}<|endoftext|>{% endfor %}");
  const auto line = [](const std::string& arguments) {
    return R"({"id": 123456789012345678901234567890, "messages": [{"role": "assistant", )"
           R"("tool_calls": [{"function": {"name": "f", "arguments": )" +
           arguments + "}}]}]}";
  };
  EXPECT_EQ(only_row(line(R"("{\"a\": 1, \"b\": 2, \"a\": 3}")")),
            "f[{\"a\": 3, \"b\": 2}<|endoftext|>]");
  EXPECT_EQ(only_row(line(R"("{\"a\": [1E400, -1e400]}")")),
            "f[{\"a\": [Infinity, -Infinity]}<|endoftext|>]");
  for (const char* wide : {"18446744073709551615", "-123456789012345678901234567890"}) {
    const std::string object = concat("{\"a\": ", wide, "}");
    const std::string as_text = json::serialize(json::value(object));
    for (const std::string& arguments : {object, as_text})
      expect_words(only_reason(line(arguments)), {wide, "64 bits", "as a string"});
  }
}

TEST_F(ChatRowsTest, RejectsAnswerWithUnwrittenToolCalls) {
  const std::string call = R"(, "tool_calls": [{"function": {"name": "get_weather"}}])";
  expect_words(only_reason(R"({"messages": [)" + user("a") + "," + assistant("", call) + "]}"),
               {"no target tokens", "template"});
  set_template(
      "{% for m in messages %}{{ m.role }}:{% if m.tool_calls %}{{ m.tool_calls[0].name }}"
      "{% endif %};{% endfor %}");
  const std::string two = R"(, "tool_calls": [{"name": "get_weather"}, {"name": "get_weather"}])";
  expect_words(only_reason(R"({"messages": [)" + user("a") + "," + assistant("", two) + "]}"),
               {"no target tokens", "template"});
}

TEST_F(ChatRowsTest, FunctionNameInTextIsNotToolCall) {
  const std::string call = R"(, "tool_calls": [{"function": {"name": "search"}}])";
  const std::string answer = assistant("I will search the web.", call);
  for (const std::string& line :
       {concat(R"({"messages": [)", user("a"), ",", answer, "]}"),
        concat(R"({"prompt": [)", user("a"), R"(], "completion": [)", answer, "]}")})
    expect_words(only_reason(line), {"no target tokens", "template"});
}

TEST_F(ChatRowsTest, ConvertsFlatToolCallsToFunctions) {
  set_template(
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %};{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}");
  for (const char* key : {"arguments", "parameters", "args", "input"})
    EXPECT_EQ(
        chat(user("a") + "," +
             assistant("", concat(R"(, "tool_calls": [{"name": "f", ")", key, R"(": {"x": 1}}])"))),
        "user:a;assistant:[f{\"x\": 1};]");
}

TEST_F(ChatRowsTest, ChatsWithToolsUseToolTemplate) {
  std::filesystem::remove(folder_ / "chat_template.jinja");
  folder_.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "{% for m in messages %}{{ m.content }}|{% endfor %}"},
      {"name": "tool_use", "template": "{{ tools | length }}{% for m in messages %}{% generation %}{{ m.content }};{% endgeneration %}{% endfor %}"}]})");
  chat_ = read_chat_files(folder_.path());
  EXPECT_EQ(chat(user("a") + "," + assistant("b")), "a|[b|]");
  EXPECT_EQ(chat(user("a") + "," + assistant("b"), R"(, "tools": [])"), "a|[b|]");
  EXPECT_EQ(chat(assistant("b"), R"(, "tools": [{"function": {"name": "f"}}])"), "1[b;]");
}

TEST_F(ChatRowsTest, ReportsMembersOmittedByTemplate) {
  const std::string row = R"({"messages": [{"role": "system", "content": " be brief "},
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning": "because "}],
      "tools": [{"type": "function", "function": {"name": "look"}}]})";
  std::string line = row;
  std::erase(line, '\n');
  const auto omitted = [&](const std::string& source) {
    set_template(source);
    return read(line + "\n" + line).findings.omitted;
  };
  using Keys = std::map<std::string, std::int64_t>;
  const std::string end = "{{ m.content }}<|endoftext|>{% endfor %}";
  EXPECT_EQ(omitted("{% for m in messages %}" + end), (Keys{{"reasoning", 2}, {"tools", 2}}));
  EXPECT_EQ(omitted("{{ messages[0].content }}{{ tools | tojson }}{% for m in messages[1:] %}"
                    "{{ m.reasoning_content | trim }}" +
                    end),
            Keys{});
  EXPECT_EQ(omitted("{% for m in messages if m.role != 'system' %}{{ m.thinking }}"
                    "{{ tools }}" +
                    end),
            (Keys{{"content of system", 2}}));
  expect_words(read(line).notes().at(0), {"content of system", "leaves out"});
}

TEST_F(ChatRowsTest, ReportsPartiallyOmittedAnswer) {
  const std::string line = concat(R"({"messages": [)", user("a"), ",",
                                  assistant("<think>why</think>\\n\\nHello world"), "]}");
  const std::pair<const char*, std::size_t> kWritten[] = {
      {"{{ m.content }}", 0},
      {"{{ m.content | replace('\n\n', '\n') }}", 0},
      {"{{ m.content.split('</think>')[-1] }}", 1},
      {"{{ m.content[:9] }}", 1}};
  for (const auto& [written, count] : kWritten) {
    set_template(concat("{% for m in messages %}<{{ m.role }}>", written,
                        "<|endoftext|>{% endfor %}{% if add_generation_prompt %}<assistant>"
                        "{% endif %}"));
    EXPECT_EQ(read(line).findings.omitted.count("content of assistant"), count) << written;
  }
}

TEST_F(ChatRowsTest, ReportsUnusedKeysAndUnknownRoles) {
  set_template(
      "{% for m in messages %}<{{ m.role }}{% if m.role == 'tool' %} {{ m.name }}{% endif %}>"
      "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}<|endoftext|>"
      "{% endfor %}");
  const ExampleRows rows = read(
      R"({"messages": [{"role": "critic", "content": "a", "name": "n"}, {"role": "User", "content": "b"},)"
      R"( {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "xtra": 1}}]},)"
      R"( {"role": "tool", "name": "f", "content": "c"}, {"role": "assistant", "content": ""}]})");
  EXPECT_EQ(rows.findings.unused_of_messages, (std::set<std::string>{"name", "tool_calls.xtra"}));
  EXPECT_EQ(rows.findings.other_roles, std::set<std::string>{"critic"});
  EXPECT_EQ(rows.findings.original_roles, std::set<std::string>{"User"});
  EXPECT_EQ(rows.findings.empty_answers, 1);
}

TEST_F(ChatRowsTest, PassesPartsToPartsTemplate) {
  set_template(
      "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}"
      "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %};{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_EQ(chat(user("ab") + "," + assistant("c")), "<user>ab;<assistant>[c;]");
}

TEST_F(ChatRowsTest, TrainsOnAnswerThatBeginsChat) {
  EXPECT_EQ(chat(assistant("b") + "," + user("c")),
            "<assistant>[b<|endoftext|>]<user>c<|endoftext|>");
  set_template(
      "{% for m in messages %}{% if loop.first %}<system>be good{% endif %}<{{ m.role }}>"
      "{{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
      "%}");
  EXPECT_EQ(chat(assistant("b") + "," + user("c")),
            "<system>be good<assistant>[b<|endoftext|>]<user>c<|endoftext|>");
}

TEST_F(ChatRowsTest, EndTokenBeforeToolOutputEndsAnswer) {
  set_template(
      "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}"
      "{% set ns = namespace(said=false) %}{% for k in range(loop.index0 + 1, messages | length) %}"
      "{% set other = messages[k] %}{% if other.role == 'tool' %}<|endoftext|>{{ other.content }}"
      "{% set ns.said = true %}{% endif %}{% endfor %}"
      "{% if not ns.said %}<|endoftext|>{% endif %}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_EQ(chat(assistant("b") + R"(, {"role": "tool", "content": "t"})"),
            "<assistant>[b<|endoftext|>]t");
}

TEST_F(ChatRowsTest, TimeIsNotQuadraticInChatLength) {
  set_template(kThinking);
  const auto seconds = [&](int turns) {
    std::string messages = user("some words of a question");
    for (int i = 0; i < turns; ++i)
      messages += "," + assistant("some words of an answer") + "," + user("and some more");
    const std::string line = R"({"messages": [)" + messages + "]}";
    const std::clock_t begin = std::clock();  // CPU time, independent of other processes
    EXPECT_EQ(read(line, 1 << 20).rows.size(), 1u);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds(10);
  const double few = std::min(seconds(100), seconds(100));
  EXPECT_LT(seconds(1600),
            60 * few);  // 256 times if every turn rescanned the previous ones
}

}  // namespace
}  // namespace hybrid_trainer
