#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <set>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "src/files/folder_files.h"

namespace hybrid_trainer {

/// A JSON object from an untrusted file: at most 256 MiB, nested at most 32 deep, no duplicate
/// keys. Throws MissingInput, or DataError that names the file and the place.
boost::json::object read_json_object(const FolderFiles& folder, const std::string& name);
void write_json(const boost::json::value& value, const std::filesystem::path& path);

/// A value of a JSON file, with its path for messages, "model.merges[3]". What is not of the kind
/// asked for throws DataError. The value must outlive it.
class JsonPlace {
 public:
  JsonPlace(const boost::json::value& value, std::string file)
      : JsonPlace(value, "", std::make_shared<File>(File{std::move(file), {}})) {}

  const boost::json::value& value() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return file_->name; }
  /// A member, which must be there.
  JsonPlace at(std::string_view key) const;
  /// A member, unless it is absent or null.
  std::optional<JsonPlace> find(std::string_view key) const;
  /// Notes the members of an object that are not among these, unless they are null.
  void know(std::initializer_list<std::string_view> keys) const;
  /// The paths of members so noted in this file, in order, at most 100; of an array's elements without
  /// the number, "added_tokens[].colour".
  std::vector<std::string> unknown() const {
    return {file_->unknown.begin(), file_->unknown.end()};
  }
  /// Refuses a member that is neither absent nor null nor this.
  void expect(std::string_view key, const boost::json::value& wanted) const;

  const boost::json::object& object() const;
  const boost::json::array& array() const;
  std::string text() const;
  bool flag() const;
  /// A member, or `otherwise` if it is absent or null.
  bool flag(std::string_view key, bool otherwise = false) const;
  std::int64_t count(std::int64_t most = INT32_MAX) const;  // from 0 on
  double number() const;
  /// The places of an array's elements, each made when it is reached.
  auto items() const {
    return std::views::iota(std::size_t{0}, array().size()) |
           std::views::transform([place = *this](std::size_t i) { return place.item(i); });
  }
  JsonPlace item(std::size_t i) const;  // which must be there

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

/// The start of a value's JSON, for messages.
std::string shortened(const boost::json::value& value);

}  // namespace hybrid_trainer
