#include "src/files/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

namespace hybrid_trainer {
namespace {

TEST(JsonLine, WritesOneLineWithShortestNumbers) {
  const boost::json::object line{{"a", {1, -2.5, 1e-7, 3.0}},
                                 {"none", {NAN, INFINITY, nullptr}},
                                 {"empty", {boost::json::object(), boost::json::array()}},
                                 {"text", "a<b\n\"é\""},
                                 {"flag", true},
                                 {"left", json_or_null(std::nullopt)},
                                 {"right", json_or_null(0.1)}};
  EXPECT_EQ(json_line(line),
            "{\"a\":[1,-2.5,1e-07,3],\"none\":[null,null,null],\"empty\":[{},[]],"
            "\"text\":\"a\\u003cb\\n\\\"é\\\"\",\"flag\":true,\"left\":null,\"right\":0.1}");
}

TEST(JsonString, AnyByteStringBecomesValidJson) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string kept = "grün 中 🙂 \"quoted\" \\ \n\t\r\x01";
  EXPECT_EQ(boost::json::value_to<std::string>(boost::json::parse(json_string(kept))), kept);
  EXPECT_NO_THROW(boost::json::parse(json_string(all)));
  EXPECT_EQ(json_string("\xC3"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(json_string("a\xED\xA0\x80z"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\"");
}

TEST(PrettyJson, ReplacesInvalidUtf8) {
  EXPECT_EQ(pretty_json(boost::json::object{{"bad\xFF", "<\xFE>"}}),
            "{\n  \"bad\xEF\xBF\xBD\": \"<\xEF\xBF\xBD>\"\n}\n");
}

TEST(JsonString, EscapesScriptEndTag) {
  EXPECT_EQ(json_string("</script>").find('<'), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
