#include "hybrid_trainer/tables/file_in_row.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {
namespace json = boost::json;

const json::value* value_in_row(const json::object& row, std::string_view name) {
  const json::value* value = row.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::filesystem::path folder_of_rows(const std::filesystem::path& rows) {
  constexpr std::size_t kLongestPath = 1 << 12;
  const std::filesystem::path named = rows.string() + kFolderOfRows;
  return std::filesystem::exists(named) ? std::filesystem::path(read_file(named, kLongestPath))
                                        : rows.parent_path();
}

namespace {

/// A path has no such bytes, and sound and pictures have some.
bool is_binary(const json::string& text) {
  const std::string_view bytes(text);
  return bytes.find('\0') != bytes.npos || valid_utf8_bytes(bytes, 0) != bytes.size();
}

}  // namespace

FilePart FilesInRows::file(const json::object& row, std::string_view name,
                           const RowFileWords& words, const std::filesystem::path& folder,
                           const std::string& place) {
  const json::value* value = value_in_row(row, name);
  if (value == nullptr) throw DataError(concat("it has no \"", name, "\"; ", words.wanted));
  const json::value* bytes = value->is_string() && is_binary(value->get_string()) ? value : nullptr;
  std::string called = place;
  if (value->is_object()) {
    const json::object& object = value->get_object();
    bytes = value_in_row(object, "bytes");
    value = value_in_row(object, "path");
    if (bytes != nullptr && bytes->is_string() && bytes->get_string().empty()) bytes = nullptr;
    if (bytes != nullptr && !(bytes->is_string() && is_binary(bytes->get_string())))
      throw DataError(concat("\"", name, "\" ", words.holds));
    if (bytes == nullptr && value == nullptr)
      throw DataError(concat("\"", name, "\" has no \"path\"; ", words.wanted));
    if (bytes != nullptr && value != nullptr && value->is_string())
      called = concat(std::string_view(value->get_string()), " in ", place);
  }
  if (bytes != nullptr) {
    if (!held_) held_.emplace();
    return held_->add(bytes->get_string(), called);
  }
  if (!value->is_string() || value->get_string().empty())
    throw DataError(concat("\"", name, "\" is no path of ", words.file, "; ", words.wanted));
  return folder / std::string(value->get_string());
}

}  // namespace hybrid_trainer
