#include "hybrid_trainer/tables/file_in_row.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace json = boost::json;

const json::value* value_in_row(const json::object& row, std::string_view name) {
  const json::value* value = row.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string path_in_row(const json::object& row, std::string_view name, const RowFileWords& words) {
  const json::value* value = value_in_row(row, name);
  if (value == nullptr) throw DataError(concat("it has no \"", name, "\"; ", words.wanted));
  if (value->is_object()) {
    const json::object& object = value->get_object();
    const json::value* bytes = value_in_row(object, "bytes");
    if (bytes != nullptr && !(bytes->is_string() && bytes->get_string().empty()))
      throw DataError(concat("\"", name, "\" ", words.holds));
    value = value_in_row(object, "path");
    if (value == nullptr) throw DataError(concat("\"", name, "\" has no \"path\"; ", words.wanted));
  }
  if (!value->is_string() || value->get_string().empty())
    throw DataError(concat("\"", name, "\" is no path of ", words.file, "; ", words.wanted));
  return std::string(value->get_string());
}

}  // namespace hybrid_trainer
