#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <ctime>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/chat_template.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

std::string text_of(const std::string& source, const json::object& variables = {}) {
  return ChatTemplate(source, "t").render(variables, 0).text;
}

/// The error of a template, when it is parsed or rendered. Expects it soon.
std::string soon_refused(const std::string& source, const json::object& variables = {}) {
  const std::clock_t begin = std::clock();
  std::string message = message_of<DataError>([&] { text_of(source, variables); });
  EXPECT_LT(message.size(), 1200u) << message.substr(0, 400);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 10) << source.substr(0, 200);  // 2 s without a sanitizer
  return message;
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}
std::string printed(const std::string& expression) { return "{{ " + expression + " }}"; }

TEST(HostileTemplate, DeepNestingErrorNamesConstruct) {
  expect_words(soon_refused(printed("'a'" + repeated("|trim", 20000))),
               {"t:1:", "\"trim\"", "deeply"});
  expect_words(soon_refused(printed("1" + repeated("+1", 16000))), {"\"+\"", "deeply"});
  expect_words(soon_refused(printed("1" + repeated(" or 1", 20000))), {"\"or\"", "deeply"});
  expect_words(soon_refused(printed("1" + repeated(" and 1", 20000))), {"\"and\"", "deeply"});
  expect_words(soon_refused(printed("x" + repeated(".y", 20000))), {"\".y\"", "deeply"});
  expect_words(soon_refused(printed("x" + repeated("[0]", 20000))), {"\"[…]\"", "deeply"});
  expect_words(soon_refused(printed("1" + repeated(" if 1", 20000))), {"\"if\"", "deeply"});
  expect_words(soon_refused(printed("x" + repeated(".strip()", 9000))), {"deeply"});
  expect_words(soon_refused(printed(repeated("-", 40000) + "1")), {"signs", "deeply"});
  expect_words(soon_refused(printed(repeated("not ", 40000) + "1")), {"not", "deeply"});
  for (const auto& [open, close] : {std::pair{"(", ")"}, {"[", "]"}, {"{'a':", "}"}, {"m(", ")"}})
    expect_words(soon_refused(printed(repeated(open, 20000) + "1" + repeated(close, 20000))),
                 {"brackets", "deeply"});
  expect_words(soon_refused(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000)),
               {"statements", "deeply"});
}

TEST(HostileTemplate, WideExpressionsAreRendered) {
  EXPECT_EQ(text_of(printed("'a'" + repeated("~'a'", 5000))), std::string(5001, 'a'));
  EXPECT_EQ(text_of(printed("[" + repeated("1,", 5000) + "]|length")), "5000");
  EXPECT_EQ(text_of(printed("1" + repeated("+1", 150))), "151");
  EXPECT_EQ(text_of("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% else %}b{% endif %}"), "b");
}

TEST(HostileTemplate, UnboundedValueGrowthIsRejected) {
  const std::string loop = "{% set n = namespace(x='ab') %}{% for i in range(100) %}";
  const auto growing = [&](const std::string& next) {
    return soon_refused(loop + "{% set n.x = " + next + " %}{% endfor %}");
  };
  expect_words(growing("n.x + n.x"), {"t:1:", "MiB"});
  expect_words(growing("n.x ~ n.x"), {"MiB"});
  expect_words(growing("n.x * 9"), {"repeating", "MiB"});
  expect_words(growing("[n.x, n.x]"), {"a list", "MiB"});
  expect_words(growing("(n.x, n.x)"), {"a tuple", "MiB"});
  expect_words(growing("{'a': n.x, 'b': n.x}"), {"a dict", "MiB"});
  expect_words(growing("[n.x] + [n.x]"), {"MiB"});
  expect_words(growing("n.x|replace('a', n.x)"), {"MiB"});
  expect_words(growing("n.x.replace('', n.x)"), {"MiB"});
  expect_words(growing("n.x.join([n.x, n.x, n.x])"), {"MiB"});
  expect_words(growing("[n.x, n.x]|join(n.x)"), {"MiB"});
  expect_words(growing("n.x|tojson|tojson"), {"MiB"});
  expect_words(growing("[n.x, n.x]|string"), {"MiB"});
  expect_words(soon_refused(loop + "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}"),
               {"MiB"});
  expect_words(soon_refused("{{ 'x' * 1000000000 }}"), {"repeating", "MiB"});
  expect_words(soon_refused("{{ [1] * 1000000000 }}"), {"repeating", "MiB"});
  expect_words(soon_refused("{{ range(1000000000) | length }}"), {"range"});
  expect_words(soon_refused("{% set x = 'x' * 1000000 %}{{ x.split('x') | length }}"), {"split"});
  expect_words(soon_refused("{% set x = 'x' * 1000000 %}{% for c in x %}{% endfor %}"),
               {"characters"});
  expect_words(soon_refused("{{ range(100000)|list|tojson(indent=64) }}"), {"MiB"});
  expect_words(
      soon_refused("{% set x = 'x' * 100000 %}{% for i in range(10000) %}{{ x }}{% endfor %}"),
      {"writes", "MiB", "chat of"});
}

TEST(HostileTemplate, UnboundedValueNestingIsRejected) {
  const auto nested = [](const std::string& next) {
    return soon_refused("{% set n = namespace(x=1) %}{% for i in range(100000) %}{% set n.x = " +
                        next + " %}{% endfor %}{{ n.x }}");
  };
  expect_words(nested("[n.x]"), {"a list", "nested", "deep"});
  expect_words(nested("(n.x,)"), {"a tuple", "nested", "deep"});
  expect_words(nested("{'a': n.x}"), {"a dict", "nested", "deep"});
  expect_words(nested("{'a': n.x}.items"), {"a dict", "nested", "deep"});
  json::value deep = 1;
  for (int i = 0; i < 2000; ++i) deep = json::array{std::move(deep)};
  expect_words(soon_refused("", {{"x", std::move(deep)}}), {"a list", "nested", "deep"});
}

TEST(HostileTemplate, CyclicNamespacesAreFreed) {
  EXPECT_EQ(text_of("{% set n = namespace() %}{% set n.x = n %}{% set n.y = [n] %}"
                    "{% for i in range(90000) %}{% set n.x = namespace(y=n.x) %}{% endfor %}"),
            "");
}

TEST(HostileTemplate, EndlessComputationIsRejected) {
  std::string loops = "{% set r = range(100) %}", ends;
  for (int i = 0; i < 8; ++i) {
    loops += "{% for i in r %}";
    ends += "{% endfor %}";
  }
  expect_words(soon_refused(loops + ends), {"t:1:", "exceeds the limit of"});
  expect_words(soon_refused(loops + "{% set x = i %}" + ends), {"exceeds the limit of"});
  std::string macros;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "m" + std::to_string(i + 1) + "()";
    macros += "{% macro m" + std::to_string(i) + "() %}{{ " + next + " }}{{ " + next + " }}" +
              "{% endmacro %}";
  }
  expect_words(soon_refused(macros + "{% macro m40() %}{% endmacro %}{{ m0() }}"),
               {"exceeds the limit of"});
  expect_words(soon_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
               {"\"m\"", "deeply"});
  expect_words(soon_refused("{% macro m(x=m()) %}{% endmacro %}{{ m() }}"), {"\"m\"", "deeply"});
}

/// The allowed depth must fit on the stack, even with a sanitizer.
TEST(HostileTemplate, MixedNestingCountsTowardOneDepthLimit) {
  const std::string body = repeated("{% if 1 %}", 60) + "{{ " + repeated("(", 40) + "m()" +
                           repeated(" ~ '')", 40) + " }}" + repeated("{% endif %}", 60);
  expect_words(soon_refused("{% macro m() %}" + body + "{% endmacro %}{{ m() }}"), {"deeply"});
}

TEST(HostileTemplate, LargeValueOperationsCountTowardLimit) {
  const std::string x = "{% set x = 'a' * 1000000 %}{% set y = 'b' * 500000 ~ 'a' %}";
  const auto in_a_loop = [&](const std::string& expression) {
    return soon_refused(x + "{% for i in range(100000) %}{% if " + expression +
                        " %}{% endif %}{% endfor %}");
  };
  for (const char* expression :
       {"x.find(y)", "y in x", "x.strip(y)", "x|trim(y)", "x.startswith(y)", "x == y", "x[5]",
        "x|length", "x|replace(y, '')", "x[::-1]", "x is defined", "x.split(y)", "x|upper",
        "x < y"})
    expect_words(in_a_loop(expression), {"chat of"});
  const std::string numbers = "{% set x = range(100000)|list %}";
  for (const char* expression : {"x == x", "5 in x", "x|select('in', x)|list", "x|join", "x|list",
                                 "x + x", "x[1:]", "x|map('string')|list", "x is eq(x)"})
    expect_words(soon_refused(numbers + "{% for i in range(100000) %}{% if " + expression +
                              " %}{% endif %}{% endfor %}"),
                 {"t:1:"});
  std::string keys;
  for (int i = 0; i < 20000; ++i) keys += "'" + std::to_string(i) + "':1,";
  expect_words(
      soon_refused("{% set x = {" + keys + "} %}{% for i in range(100000) %}" +
                   "{% if x['19999'] + x.z|default(1) + x.get('19998') %}{% endif %}{% endfor %}"),
      {"exceeds the limit of"});
}

TEST(HostileTemplate, LongTextsTakeLinearTime) {
  const json::object variables{{"x", std::string(1 << 20, 'a')},
                               {"y", std::string(1 << 19, 'a') + 'b'},
                               {"spaces", std::string(1 << 19, ' ') + 'b'}};
  const std::clock_t begin = std::clock();
  EXPECT_EQ(text_of("{{ x.find(y) }}{{ y in x }}{{ x.strip(y)|length }}{{ x.split(y)|length }}"
                    "{{ x.replace(y, '')|length }}{{ x[-1] }}{{ x[::-1]|last }}{{ x|first }}",
                    variables),
            "-1False011048576aaa");
  EXPECT_EQ(text_of("{{ spaces.split() }}", variables), "['b']");
  EXPECT_EQ(text_of(repeated(" {{ 1 }}", 20000)).size(), 40000u);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
}

TEST(HostileTemplate, LongTemplatesAreRejected) {
  expect_words(soon_refused(repeated("{{1}}", 200000)), {"more than 100000", "tokens"});
  expect_words(soon_refused(std::string((1 << 20) + 1, 'x')), {"t:", "1048577", "1048576"});
  EXPECT_EQ(text_of(std::string(1 << 20, 'x')).size(), std::size_t{1} << 20);
  const std::string name(100000, 'x');
  expect_words(soon_refused("{{ 1|" + name + " }}"), {"xxx…", "filter"});
  expect_words(soon_refused("{{ " + name + ".y }}"), {"xxx…", "undefined"});
  expect_words(soon_refused("{{ " + name + "() }}"), {"xxx…", "function"});
  expect_words(soon_refused("{% " + name + " %}"), {"xxx…", "statement"});
  expect_words(soon_refused("{{ 1" + repeated("1", 100000) + " }}"), {"111…", "64 bits"});
  expect_words(soon_refused("{{ raise_exception('" + name + "') }}"), {"xxx…"});
}

}  // namespace
}  // namespace hybrid_trainer
