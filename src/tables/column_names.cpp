#include "hybrid_trainer/tables/column_names.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace json = boost::json;

ColumnNames::ColumnNames(const std::string& text, const std::string& key) {
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError({concat(key, ": got \"", text, "\", ", problem,
                              "; want NAME=COLUMN,… such as prompt=question,completion=answer")});
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string part = text.substr(begin, text.find(',', begin) - begin);
    begin += part.size() + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      refuse(concat("of which \"", part, "\" has no NAME="));
    const std::string name = part.substr(0, equals);
    if (std::ranges::find(names_, name, &Name::name) != names_.end())
      refuse(concat("which names ", name, " twice"));
    names_.push_back({name, part.substr(equals + 1)});
  }
}

std::string ColumnNames::column_of(const std::string& name) const {
  const auto found = std::ranges::find(names_, name, &Name::name);
  return found == names_.end() ? name : found->column;
}

std::vector<std::string> ColumnNames::rename(json::object& row) const {
  std::vector<std::string> replaced;
  std::vector<std::optional<json::value>> values;
  for (const Name& one : names_) {
    const json::value* held = row.if_contains(one.column);
    values.push_back(held == nullptr ? std::nullopt : std::optional(*held));
  }
  for (const Name& one : names_) row.erase(one.column);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const json::value* const held = row.if_contains(names_[i].name);
    if (held != nullptr && !held->is_null() && !names_[i].column.empty())
      replaced.push_back(names_[i].name);
    row.erase(names_[i].name);
    if (values[i] && !names_[i].column.empty()) row[names_[i].name] = *std::move(values[i]);
  }
  return replaced;
}

}  // namespace hybrid_trainer
