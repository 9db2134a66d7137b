#pragma once

#include <string>
#include <utility>
#include <vector>

namespace boost::json {
class object;  // whoever calls what follows includes <boost/json.hpp>
}

namespace hybrid_trainer {

/// Names by which rows are read, with the columns that have them in a file.
class ColumnNames {
 public:
  struct Name {
    std::string name, column;  // no column: nothing goes by the name
  };
  ColumnNames() = default;
  explicit ColumnNames(std::vector<Name> names) : names_(std::move(names)) {}
  /// Of "prompt=question,completion=answer,text=". Throws ConfigError, which names `key`, where a name
  /// is missing or stands twice.
  explicit ColumnNames(const std::string& text, const std::string& key = "data.columns");

  const std::vector<Name>& names() const { return names_; }
  /// The column that is read by this name; "" for none.
  std::string column_of(const std::string& name) const;
  /// Gives each name what its column holds, and takes the column out. All columns are looked up
  /// before, so that two may change places. Returns the columns whose names others take, which go.
  std::vector<std::string> rename(boost::json::object& row) const;

 private:
  std::vector<Name> names_;
};

}  // namespace hybrid_trainer
