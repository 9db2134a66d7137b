#include "src/files/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

json::value parsed_with_names(std::string_view text) {
  return json::parse(with_named_floats(text));
}

TEST(PythonFloats, ConvertsBareFloatsAndKeepsStrings) {
  const json::value value = parsed_with_names(
      R"({"a": [0.0, Infinity], "b": -Infinity, "c":NaN, "Infinity": "NaN \" Infinity \\", "d": -1})");
  EXPECT_EQ(number_of(value.at("a").at(1)), INFINITY);
  EXPECT_EQ(number_of(value.at("b")), -INFINITY);
  EXPECT_TRUE(std::isnan(number_of(value.at("c")).value()));
  EXPECT_EQ(value.at("Infinity"), "NaN \" Infinity \\");
  EXPECT_EQ(number_of(value.at("d")), -1);
}

TEST(PythonFloats, AcceptsOnlyPythonFloatNames) {
  for (const char* text : {R"("Infinity")", R"({"__float__": "Infinity", "b": 1})",
                           R"({"__float__": "1"})", "{}", "null", "[1]"})
    EXPECT_FALSE(number_of(parsed_with_names(text))) << text;
  for (const char* text : {"Infinit", "Nan", "+Infinity", "1Infinity", "NaNs"})
    EXPECT_ANY_THROW(parsed_with_names(text)) << text;
}

TEST(PythonFloats, WritesFloatsByName) {
  EXPECT_EQ(json::serialize(named_float(INFINITY)), R"({"__float__":"Infinity"})");
  for (const double number : {-HUGE_VAL, HUGE_VAL, 0.25})
    EXPECT_EQ(number_of(named_float(number)), number);
  EXPECT_TRUE(std::isnan(number_of(named_float(NAN)).value()));
}

}  // namespace
}  // namespace hybrid_trainer
