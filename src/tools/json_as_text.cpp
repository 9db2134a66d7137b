#include "src/tools/json_as_text.h"

#include <algorithm>
#include <boost/json.hpp>
#include <sstream>

#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

std::string scalar_text(json::string_view key, const json::value& value);

std::string list_text(const json::array& array) {
  std::string text = "[";
  for (const json::value& item : array)
    text += (text.size() > 1 ? ", " : "") + scalar_text("", item);
  return text + "]";
}

std::string scalar_text(json::string_view key, const json::value& value) {
  if (value.is_null()) return key.ends_with("loss") ? "not measured" : "none";
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_bool()) return value.get_bool() ? "yes" : "no";
  if (value.is_array()) return list_text(value.get_array());
  if (value.is_double()) {
    std::ostringstream out;
    out.precision(5);
    out << value.get_double();
    return out.str();
  }
  if (value.is_object()) return json::serialize(value);
  if (key.ends_with("bytes") && !(value.is_int64() && value.get_int64() < 0))
    return units::bytes(value.to_number<std::size_t>());
  return value.is_int64() ? units::grouped(value.get_int64()) : json::serialize(value);
}

bool is_table(const json::value& value) {
  const json::array* const rows = value.if_array();
  return rows != nullptr && !rows->empty() &&
         std::ranges::all_of(*rows, [](const json::value& row) { return row.is_object(); });
}

/// A GGUF file's own names, "general.file_type", stay as they are.
std::string key_text(json::string_view key) {
  std::string text(key);
  if (text.find('.') != text.npos) return text;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

constexpr std::size_t kWidest = 100;  // column: a name from a file may be much longer

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// Objects with the same keys as rows without a heading; columns as wide as their widest value.
std::string table_text(const json::array& rows, const std::string& indent) {
  std::vector<std::size_t> widths(rows.front().get_object().size(), 0);
  const auto visit = [&](const auto& cell) {
    for (const json::value& row : rows) {
      std::size_t column = 0;
      for (const auto& [key, value] : row.get_object()) cell(column++, scalar_text(key, value));
    }
  };
  visit([&](std::size_t column, const std::string& text) {
    if (column < widths.size())
      widths[column] = std::max(widths[column], std::min(text.size(), kWidest));
  });
  std::string lines;
  visit([&](std::size_t column, const std::string& text) {
    const bool last = column + 1 >= widths.size();
    lines += (column == 0 ? indent : "  ") + (last ? text + "\n" : padded(text, widths[column]));
  });
  return lines;
}

std::string object_text(const json::object& object, const std::string& indent) {
  std::size_t width = 0;
  for (const auto& [key, value] : object) {
    if (!value.is_object() && !is_table(value)) width = std::max(width, key.size());
  }
  std::string text;
  for (const auto& [key, value] : object) {
    const std::string name = indent + key_text(key);
    if (value.is_object()) {
      text += name + "\n" + object_text(value.get_object(), indent + "  ");
    } else if (is_table(value)) {
      text += name + "\n" + table_text(value.get_array(), indent + "  ");
    } else {
      text += padded(name, indent.size() + std::min(width, kWidest)) + "  " +
              scalar_text(key, value) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string json_as_text(const json::object& object) { return object_text(object, ""); }

}  // namespace hybrid_trainer
