#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/files/folder_files.h"

namespace hybrid_trainer {

/// Reads a JSON object from an untrusted file: at most 256 MiB, nested at most 32 deep, without
/// duplicate keys. Throws MissingInput, or DataError with the file and the place in it.
boost::json::object read_json_object(const FolderFiles& folder, const std::string& name);
void write_json(const boost::json::value& value, const std::filesystem::path& path);

/// A value in a JSON file and its path for messages, such as "model.merges[3]". Accessors throw
/// DataError if the value has another kind. The value must outlive this object.
class JsonPlace {
 public:
  JsonPlace(const boost::json::value& value, std::string file)
      : JsonPlace(value, "", std::make_shared<File>(File{std::move(file), {}})) {}

  const boost::json::value& value() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return file_->name; }
  JsonPlace at(std::string_view key) const;
  /// Returns a member, or nullopt if it is absent or null.
  std::optional<JsonPlace> find(std::string_view key) const;
  /// Records as unknown the members of an object that are not in `keys`, except null members.
  void know(std::initializer_list<std::string_view> keys) const;
  /// Returns the paths of at most 100 unknown members, without indices: "added_tokens[].color".
  std::vector<std::string> unknown() const {
    return {file_->unknown.begin(), file_->unknown.end()};
  }
  /// Throws DataError if a member is present and is neither null nor `wanted`.
  void expect(std::string_view key, const boost::json::value& wanted) const;

  const boost::json::object& object() const;
  const boost::json::array& array() const;
  std::string text() const;
  bool flag() const;
  bool flag(std::string_view key, bool otherwise = false) const;
  std::int64_t count(std::int64_t most = INT32_MAX) const;  // requires a nonnegative integer
  double number() const;
  auto items() const {
    return std::views::iota(std::size_t{0}, array().size()) |
           std::views::transform([place = *this](std::size_t i) { return place.item(i); });
  }
  JsonPlace item(std::size_t i) const;  // the element must exist

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(file(), ": ", path_, path_.empty() ? "" : " ", parts...));
  }

 private:
  struct File {
    std::string name;
    std::set<std::string> unknown;
  };
  JsonPlace(const boost::json::value& value, std::string path, std::shared_ptr<File> file)
      : value_(&value), path_(std::move(path)), file_(std::move(file)) {}
  [[noreturn]] void fail_kind(const char* wanted) const;
  JsonPlace member(std::string_view key, const boost::json::value& value) const;
  const boost::json::value* value_;
  std::string path_;
  std::shared_ptr<File> file_;
};

/// Returns the start of a value's JSON for messages.
std::string shortened(const boost::json::value& value);

}  // namespace hybrid_trainer
