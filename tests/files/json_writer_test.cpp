#include "hybrid_trainer/files/json_writer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

namespace hybrid_trainer {
namespace {

TEST(JsonWriter, WritesNestedObjectsAndArrays) {
  JsonWriter out;
  out.begin_object();
  out.number("count", std::int64_t{-3});
  out.begin_array("list");
  out.number("", 0.1);
  out.string("", "x");
  out.begin_object();
  out.end_object();
  out.end_array();
  out.boolean("flag", true);
  out.end_object();
  EXPECT_EQ(out.text(), R"({"count":-3,"list":[0.1,"x",{}],"flag":true})");
}

TEST(JsonWriter, KeepsEveryBitOfADouble) {
  for (double value : {1.0 / 3, 1e-300, -2.5e20, 0.0, 12345678.9}) {
    JsonWriter out;
    out.number("", value);
    EXPECT_EQ(boost::json::parse(out.text()).to_number<double>(), value) << out.text();
  }
}

TEST(JsonWriter, WritesNullForNaNAndInfinity) {
  JsonWriter out;
  out.begin_array();
  out.number("", std::nan(""));
  out.number("", -std::numeric_limits<double>::infinity(), 4);
  out.number("", std::optional<double>());
  out.end_array();
  EXPECT_EQ(out.text(), "[null,null,null]");
}

}  // namespace
}  // namespace hybrid_trainer
