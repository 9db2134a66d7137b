#include "src/data/chat/chat_template.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

std::string rendered(const std::string& source, const json::object& variables = {}) {
  return ChatTemplate(source, "t").render(variables, 0).text;
}

/// The error of a template, when it is parsed or rendered.
std::string template_refusal(const std::string& source, const json::object& variables = {}) {
  return message_of<DataError>([&] { rendered(source, variables); });
}

TEST(ChatTemplate, ReportsUnsupportedSyntaxWithLine) {
  expect_words(template_refusal("\n\n{% include 'x' %}"), {"t:3:", "include"});
  expect_words(template_refusal("{% raw %}{{{% endraw %}"), {"t:1:", "raw"});
  expect_words(template_refusal("a\n{{ x | xmlattr }}"), {"t:2:", "filter", "xmlattr"});
  expect_words(template_refusal("{{ x is callable }}"), {"t:1:", "test", "callable"});
  expect_words(template_refusal("{{ x.zfill(3) }}"), {"t:1:", "method", "zfill"});
  expect_words(template_refusal("{#\n#}\n{{ lipsum() }}"), {"t:3:", "function", "lipsum"});
  expect_words(template_refusal("{{ x | tojson(cls=1) }}"), {"tojson", "cls"});
  expect_words(template_refusal("{{ x | trim(1, 2) }}"), {"trim", "2 arguments"});
  expect_words(template_refusal("{{ 2 ** 3 }}"), {"**"});
  expect_words(template_refusal("{{ f(*x) }}"), {"*"});
  expect_words(template_refusal("{% for x in y recursive %}{% endfor %}"), {"recursive"});
  expect_words(template_refusal("{% break %}"), {"break", "loop"});
  expect_words(template_refusal("{{ '%s' % 1 }}"), {"formatting"});
  expect_words(template_refusal("{{ x.pop }}", {{"x", json::object{}}}), {"pop", "dict"});
  expect_words(template_refusal("{{ 'é' | upper }}"), {"ASCII"});
  expect_words(template_refusal("{{ ('a' | safe) + 'b' }}"), {"safe"});
  expect_words(template_refusal("{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}"),
               {"generation", "macro"});
}

/// Each of these attributes used to render as an empty text.
TEST(ChatTemplate, SupportsOrRejectsPythonAttributes) {
  EXPECT_EQ(rendered("{% for a in [1] %}{% for b in [2] %}{{ loop.depth }}{{ loop.depth0 }}"
                     "{% endfor %}{% endfor %}"),
            "10");
  EXPECT_EQ(rendered("{% for a in [1] %}{{ loop.nothing }}{{ loop is mapping }}{% endfor %}"),
            "False");
  expect_words(template_refusal("{% for a in [1] %}{{ loop.changed }}{% endfor %}"),
               {"changed", "loop"});
  expect_words(template_refusal("{% for a in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}"), {"cycle"});
  for (const char* name : {"varargs", "kwargs", "caller"})
    expect_words(template_refusal(concat("{% macro m() %}{{ ", name, " }}{% endmacro %}{{ m() }}")),
                 {"t:1:", name, "macro"});
  EXPECT_EQ(rendered("{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ kwargs }}"), "1");
  expect_words(template_refusal("{{ (5).real }}"), {"real", "int"});
  expect_words(template_refusal("{% set x = 1.5 %}{{ x.is_integer }}"), {"is_integer", "float"});
  expect_words(template_refusal("{% macro m() %}{% endmacro %}{{ m.name }}"), {"name", "Macro"});
  expect_words(template_refusal("{{ range.start }}"), {"start", "function"});
  expect_words(template_refusal("{{ lipsum }}"), {"lipsum"});
  expect_words(template_refusal("{{ strftime_now('" + std::string(2000, 'x') + "') }}"),
               {"strftime_now"});
  EXPECT_EQ(rendered("{{ [[1, 2], [3, 4]] | map(attribute='1') | list }}"), "[2, 4]");
}

TEST(ChatTemplate, TitleCapitalizesEachWord) {
  EXPECT_EQ(rendered("{{ \"it's a2b CODE\".title() }}"), "It'S A2B Code");
  EXPECT_EQ(rendered("{{ 'GPT4 correct_user'.title() }}"), "Gpt4 Correct_User");
}

TEST(ChatTemplate, RenderErrorsReportLineAndCause) {
  expect_words(template_refusal("a\n{{ raise_exception('roles must alternate') }}"),
               {"t:2:", "roles must alternate"});
  expect_words(template_refusal("{{ a.b.c }}", {{"a", json::object{}}}),
               {"t:1:", "\"b\"", "undefined"});
  expect_words(template_refusal("{{ 9223372036854775807 + 1 }}"), {"64 bits"});
  expect_words(template_refusal("{{ 9223372036854775808 }}"), {"64 bits"});
  expect_words(template_refusal("{{ 'x' | tojson | list | join(1, 2, 3) }}"), {"join"});
}

TEST(ChatTemplate, RepeatsTextsAndListsOnlyByIntegers) {
  EXPECT_EQ(rendered("{{ 'ab' * 3 }}{{ 2 * 'c' }}{{ 'd' * 0 }}{{ 'e' * -1 }}"), "abababcc");
  EXPECT_EQ(rendered("{{ ([1] * 2) | length }}{{ ([] * 5) | length }}{{ '' * 5 }}"), "20");
  for (const char* wrong : {"'a' * 'b'", "[1] * [2]", "'a' * 1.5", "'a' * none", "2 * none",
                            "2 * {}", "{} * 2", "[1] * 'a'"})
    expect_words(template_refusal(concat("{{ ", wrong, " }}")), {"t:1:", "*"});
}

TEST(ChatTemplate, CaseFiltersChangeOnlyAsciiLetters) {
  EXPECT_EQ(rendered("{{ 'azAZ`{@[09' | upper }}"), "AZAZ`{@[09");
  EXPECT_EQ(rendered("{{ 'azAZ`{@[09' | lower }}"), "azaz`{@[09");
  EXPECT_EQ(rendered("{{ 'zAZ a' | capitalize }}"), "Zaz a");
  EXPECT_EQ(rendered("{{ 'a'.upper() }}{{ 'Z'.lower() }}"), "Az");
}

/// Checks both ends of each range and their neighbors.
TEST(ChatTemplate, TrimsExactlyPythonWhiteSpace) {
  const auto trimmed = [](char32_t character) {
    std::string text = "x";
    append_utf8(character, text);
    return rendered("{{ t | trim }}", {{"t", text}}) == "x";
  };
  for (const char32_t space : {0x09, 0x0D, 0x1C, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028,
                               0x2029, 0x202F, 0x205F, 0x3000})
    EXPECT_TRUE(trimmed(space)) << std::uint32_t{space};
  for (const char32_t other :
       {0x08,   0x0E,   0x1B,   0x21,   0x84,   0x86,   0x9F,   0xA1,   0x167F, 0x1681,
        0x1FFF, 0x200B, 0x2027, 0x202A, 0x202E, 0x2030, 0x205E, 0x2060, 0x2FFF, 0x3001})
    EXPECT_FALSE(trimmed(other)) << std::uint32_t{other};
}

TEST(ChatTemplate, LimitsDepthAndOutputSize) {
  expect_words(template_refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), {"deeply"});
  expect_words(
      template_refusal("{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}"),
      {"deeply"});
  expect_words(template_refusal("{{ range(1000000) | length }}"), {"range"});
  expect_words(template_refusal("{{ 'x' * 100000000 }}"), {"repeating"});
  std::string nested;
  for (int i = 0; i < 150; ++i) nested += "{% if 1 %}";
  expect_words(template_refusal(nested), {"deeply"});
  expect_words(
      template_refusal("{% set x = 'x' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}"),
      {"writes"});
}

TEST(ChatTemplate, RendersSameTextTwice) {
  const ChatTemplate chat_template(
      "{% set n = namespace(x=0) %}{% set n.x = n.x + 1 %}{{ n.x }}{{ strftime_now('%Y') }}", "t");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(chat_template.render({}, 86400 * 400).text, "11971");
  EXPECT_TRUE(chat_template.reads_date());
  EXPECT_FALSE(chat_template.marks_generation());
  EXPECT_TRUE(ChatTemplate("{% generation %}{% endgeneration %}", "t").marks_generation());
}

TEST(ChatFiles, ReadsTemplateAndSpecialTokens) {
  const TemporaryFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}", "bos_token": {"content": "<s>", "lstrip": true},
                   "eos_token": "</s>", "pad_token": null, "add_bos_token": true})");
  ChatFiles files = read_chat_files(folder.path());
  EXPECT_EQ(files.special_token("bos_token"), "<s>");
  EXPECT_EQ(files.special_token("eos_token"), "</s>");
  EXPECT_EQ(files.special_tokens.size(), 2u);
  EXPECT_EQ(files.chat_template->render({{"bos_token", "<s>"}}, 0).text, "<s>");

  folder.write("chat_template.jinja", "from the file\n");
  EXPECT_EQ(read_chat_files(folder.path()).chat_template->render({}, 0).text, "from the file");
}

TEST(ChatFiles, SpecialTokenNamesMatchTransformers) {
  const TemporaryFolder folder;
  folder.write("special_tokens_map.json", R"({"bos_token": "<s>", "pad_token": "<pad>"})");
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<b>", "eos_token": "<e>", "image_token": "<i>",
                   "model_specific_special_tokens": {"think": "<think>"},
                   "extra_special_tokens": {"audio": {"content": "<audio>"}}})");
  ChatFiles files = read_chat_files(folder.path());
  EXPECT_EQ(files.special_token("bos_token"), "<s>");
  EXPECT_EQ(files.special_token("pad_token"), "<pad>");
  EXPECT_EQ(files.special_token("eos_token"), "<e>");
  EXPECT_EQ(files.special_token("image_token"), "<i>");
  EXPECT_EQ(files.special_token("think"), "<think>");
  EXPECT_EQ(files.special_token("audio"), "<audio>");
  folder.write("tokenizer_config.json", R"({"bos_token": "<b>", "added_tokens_decoder": {}})");
  files = read_chat_files(folder.path());
  EXPECT_EQ(files.special_token("bos_token"), "<b>");
  EXPECT_EQ(files.special_token("pad_token"), "<pad>");
}

TEST(ChatFiles, SelectsDefaultOrToolUseTemplate) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "a"},
                                     {"name": "default", "template": "b"}]})");
  EXPECT_EQ(read_chat_files(folder.path()).template_for(false).render({}, 0).text, "b");
  EXPECT_EQ(read_chat_files(folder.path()).template_for(true).render({}, 0).text, "a");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "{% import x %}"},
                                     {"name": "default", "template": "b"}]})");
  EXPECT_EQ(read_chat_files(folder.path()).template_for(false).render({}, 0).text, "b");
  expect_words(message_of<DataError>([&] { read_chat_files(folder.path()).template_for(true); }),
               {"tool_use", "import"});
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "a"}]})");
  expect_words(message_of<DataError>([&] { read_chat_files(folder.path()); }),
               {"tokenizer_config.json", "default", "tool_use"});
}

TEST(ChatFiles, ReadsNamedTemplatesFromSeparateFiles) {
  const TemporaryFolder folder;
  const auto written = [&](bool has_tools) {
    return read_chat_files(folder.path()).template_for(has_tools).render({}, 0).text;
  };
  folder.write("additional_chat_templates/tool_use.jinja", "a");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "c"},
                                     {"name": "default", "template": "d"}]})");
  EXPECT_EQ(written(true) + written(false), "ad");
  folder.write("chat_template.jinja", "b");
  EXPECT_EQ(written(true) + written(false), "ab");
  EXPECT_TRUE(read_chat_files(folder.path()).template_for(false).mentions("b"));
  EXPECT_FALSE(ChatTemplate("{{ m['abc'] }}", "t").mentions("b"));
}

TEST(ChatFiles, MissingTemplateErrorSuggestsFix) {
  const TemporaryFolder folder;
  const ChatFiles files = read_chat_files(folder.path());
  expect_words(message_of<DataError>([&] { files.template_for(false); }),
               {folder.path().c_str(), "copy", "chat_template.jinja", "prompt and completion"});
}

TEST(ChatFiles, ErrorsNameInvalidFile) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_chat_files(folder.path()).chat_template.has_value());
  message_of<MissingInput>([&] { read_chat_files(folder / "nowhere"); });
  const auto read = [&] { read_chat_files(folder.path()); };
  folder.write("tokenizer_config.json", R"({"chat_template": 5})");
  expect_words(message_of<DataError>(read), {"tokenizer_config.json", "chat_template"});
  folder.write("tokenizer_config.json", "[]");
  expect_words(message_of<DataError>(read), {"tokenizer_config.json", "object"});
  folder.write("tokenizer_config.json", R"({"chat_template": "\n{% nope %}"})");
  expect_words(message_of<DataError>(read), {"tokenizer_config.json", ":2:", "nope"});
}

TEST(ChatTemplate, ComparesValuesLikePython) {
  for (const auto& [lesser, greater] : {std::pair("1", "2"),
                                        {"1", "1.5"},
                                        {"1.25", "1.5"},
                                        {"-0.5", "0"},
                                        {"'a'", "'b'"},
                                        {"'a'", "'ab'"},
                                        {"[1]", "[2]"},
                                        {"[1]", "[1, 0]"},
                                        {"[1, 2]", "[1.5]"}}) {
    const auto order = [](const std::string& a, const std::string& b) {
      std::string text;
      for (const char* operation : {"<", "<=", ">", ">=", "=="})
        text += concat("{{ 1 if ", a, " ", operation, " ", b, " else 0 }}");
      return ChatTemplate(text, "template").render({}, 0).text;
    };
    EXPECT_EQ(order(lesser, greater), "11000") << lesser << " " << greater;
    EXPECT_EQ(order(greater, lesser), "00110") << lesser << " " << greater;
    EXPECT_EQ(order(lesser, lesser), "01011") << lesser;
    EXPECT_EQ(order(greater, greater), "01011") << greater;
  }
}

TEST(ChatTemplate, NumbersNeedDigitsAfterPointOrExponent) {
  EXPECT_EQ(ChatTemplate("{{ 1.5 }} {{ 1e2 }} {{ 1.5e-1 }} {{ 2E+1 }}{{ 1.e2 }}", "template")
                .render({}, 0)
                .text,
            "1.5 100.0 0.15 20.0");
  for (const char* number : {"1.", "1e", "1e+", "1x"})
    EXPECT_THROW(ChatTemplate(concat("{{ ", number, " }}"), "template").render({}, 0), DataError)
        << number;
}

TEST(ChatTemplate, TreatsStrayBytesAsOneCharacter) {
  EXPECT_EQ(ChatTemplate("{{ x | last }}", "template").render({{"x", "\x80\x80"}}, 0).text,
            "\x80\x80");
}

TEST(ChatTemplate, DecodesOnlyValidUnicodeEscapes) {
  for (const auto& [escape, text] : {std::pair("\\ud7ff", "\xED\x9F\xBF"),
                                     {"\\ue000", "\xEE\x80\x80"},
                                     {"\\U0010ffff", "\xF4\x8F\xBF\xBF"}})
    EXPECT_EQ(ChatTemplate(concat("{{ '", escape, "' }}"), "template").render({}, 0).text, text);
  for (const char* escape : {"\\ud800", "\\udfff", "\\U00110000"})
    EXPECT_THROW(ChatTemplate(concat("{{ '", escape, "' }}"), "template"), DataError) << escape;
}

}  // namespace
}  // namespace hybrid_trainer
