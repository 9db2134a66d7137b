#include "src/files/json.h"

#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

TEST(StrictJson, RecordsLineOfEveryKey) {
  JsonKeys keys;
  parse_json_text("{\"a\":\n{\"b\": [{\"c\": 1}],\n\"d\": 2}}\n\n", "x", keys);
  EXPECT_EQ(keys.lines, (std::map<std::string, std::size_t>{{"a", 1}, {"a.b", 2}, {"a.d", 3}}));
  EXPECT_TRUE(keys.duplicates.empty());
}

/// The complete paths of all keys below a long key would take gigabytes.
TEST(StrictJson, RecordsOnlyShortKeyPaths) {
  std::string text = "{\"" + std::string(500'000, 'k') + "\": {\"a\": 1, \"a\": 2";
  for (int i = 0; i < 50'000; ++i) text += concat(",\"", i, "\":1");
  JsonKeys keys;
  parse_json_text(text + "},\n\"b\": {\"c\": 3}}", "name", keys);
  EXPECT_EQ(keys.lines, (std::map<std::string, std::size_t>{{"b", 2}, {"b.c", 2}}));
  ASSERT_EQ(keys.duplicates.size(), 1u);
  EXPECT_LT(keys.duplicates[0].path.size(), 1000u);
}

TEST(StrictJson, RejectsDuplicateKeysAtEveryLevel) {
  for (const char* text :
       {R"({"a": 1, "a": 2})", R"([{"b": {"a": 1, "a": 2}}])", R"({"\u0061": 1, "a": 2})"}) {
    EXPECT_TRUE(contains(message_of<DataError>([&] { parse_json_text(text, "x.json"); }), "twice"))
        << text;
  }
  EXPECT_NO_THROW(parse_json_text(R"([{"a": 1}, {"a": 2}])", "x.json"));
}

TEST(StrictJson, RejectsTrailingText) {
  for (const char* text : {"{} x", "{}\n\nx", "1 2", "[]]", "{}\n{}", "[1]\n,"}) {
    EXPECT_THROW(parse_json_text(text, "x.json"), DataError) << text;
  }
  EXPECT_NO_THROW(parse_json_text(" {}\n \r\n\t\n", "x.json"));
}

TEST(StrictJson, ReadsDoublesExactly) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const json::value back = parse_json_text(shortest(value), "x");
    EXPECT_EQ(back.to_number<double>(), value) << shortest(value);
  }
}

TEST(StrictJson, RejectsNumbersBeyondDoubleRange) {
  EXPECT_TRUE(contains(message_of<DataError>([] { parse_json_text("[1,\n 1e400]", "x.json"); }),
                       "x.json:2:"));
  EXPECT_THROW(parse_json_text("-1e400", "x.json"), DataError);
}

TEST(StrictJson, RejectsNanAndInfinityWithAdvice) {
  for (const char* text : {"{\"a\": NaN}", "[1, NaN]", "{\"a\": Infinity}", "{\"a\": -Infinity}"}) {
    const std::string problem = message_of<DataError>([&] { parse_json_text(text, "x"); });
    EXPECT_TRUE(contains(problem, "is not valid JSON")) << problem;
    EXPECT_TRUE(contains(problem, "write null")) << problem;
  }
}

TEST(StrictJson, RecordsIntegersBeyond64Bits) {
  WideIntegers wide;
  const json::value read =
      parse_noted_json("[1e30, 18446744073709551615, -123456789012345678901, 1.5]", "x", 100, wide);
  EXPECT_EQ(wide, (WideIntegers{{-123456789012345678901., "-123456789012345678901"}}));
  EXPECT_EQ(read.at(2), -123456789012345678901.);
  parse_noted_json("[1e30, 18446744073709551615]", "x", 100, wide);
  EXPECT_TRUE(wide.empty());
}

TEST(StrictJson, PythonJsonReadsLikePython) {
  WideIntegers wide;
  const json::value value =
      parse_python_json(R"({"a": 1, "b": 1E400, "a": [-1e400]})", "x", 100, wide);
  EXPECT_EQ(value.get_object().begin()->key(), "a");
  EXPECT_EQ(value.at("a").at(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(value.at("b"), std::numeric_limits<double>::infinity());
  EXPECT_THROW(parse_python_json(R"({"a": 1,})", "x", 100, wide), DataError);
}

TEST(StrictJson, RejectsTextOverByteLimit) {
  EXPECT_NO_THROW(parse_json_text("[1]", "x.json", JsonLimits{.max_bytes = 3}));
  EXPECT_TRUE(contains(
      message_of<DataError>([] { parse_json_text("[1]", "x.json", JsonLimits{.max_bytes = 2}); }),
      "x.json: has 3 bytes; want at most 2"));
}

TEST(StrictJson, PrettyTextRoundTrips) {
  const json::value value = parse_json_text(
      R"({"a": [1, -2, 0.5, "x\n\"y"], "b": {}, "c": [], "d": [{"e": null}, [true]], "f": {"g": 1e-7}})",
      "x");
  const std::string text = pretty_json(value);
  EXPECT_EQ(parse_json_text(text, "x"), value);
  EXPECT_TRUE(contains(text, "  \"a\": [1, -2, 0.5, \"x\\n\\\"y\"],\n  \"b\": {},\n"));
  EXPECT_TRUE(contains(text, "  \"d\": [\n    {\n      \"e\": null\n    },\n    [true]\n  ],\n"));
  EXPECT_EQ(pretty_json(std::numeric_limits<double>::quiet_NaN()), "null\n");
}

}  // namespace
}  // namespace hybrid_trainer
