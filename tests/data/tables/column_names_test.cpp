#include "src/data/tables/table_reader.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::string renamed(const std::string& columns, const char* row) {
  boost::json::object object = boost::json::parse(row).get_object();
  ColumnNames(columns).rename(object);
  return boost::json::serialize(object);
}

TEST(ColumnNames, RenameColumns) {
  EXPECT_EQ(renamed("", R"({"a":1})"), R"({"a":1})");
  EXPECT_EQ(renamed("prompt=a,completion=b", R"({"a":1,"b":2})"), R"({"prompt":1,"completion":2})");
  EXPECT_EQ(renamed("a=b,b=a", R"({"a":1,"b":2})"), R"({"a":2,"b":1})");
  EXPECT_EQ(renamed("text=", R"({"text":1,"b":2})"), R"({"b":2})");
  EXPECT_EQ(renamed("text=c", R"({"text":1,"b":2})"), R"({"b":2})");
  EXPECT_EQ(renamed("text=x=y", R"({"x=y":1})"), R"({"text":1})");
  EXPECT_EQ(ColumnNames("prompt=a").column_of("prompt"), "a");
  EXPECT_EQ(ColumnNames("prompt=a").column_of("text"), "text");
}

TEST(ColumnNames, ReportReplacedColumns) {
  for (const auto& [columns, replaced] :
       {std::pair("text=b", 1), {"b=text,text=b", 0}, {"text=", 0}, {"text=text", 0}}) {
    boost::json::object row{{"text", 1}, {"b", 2}};
    EXPECT_EQ(ColumnNames(columns).rename(row).size(), replaced) << columns;
  }
}

TEST(ColumnNames, RejectInvalidSpecification) {
  for (const char* wrong : {"prompt", "=a", "a=b,,c=d", "a=b,a=c"})
    expect_words(message_of<ConfigError>([&] { ColumnNames{wrong}; }), {"data.columns", wrong});
}

}  // namespace
}  // namespace hybrid_trainer
