#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

/// A value of a JSON file, with its path for messages, "model.merges[3]". What is not of the kind
/// asked for throws DataError. The value must outlive it.
class JsonPlace {
 public:
  JsonPlace(const boost::json::value& value, std::string file)
      : JsonPlace(value, std::move(file), "", std::make_shared<Paths>()) {}

  const boost::json::value& value() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return file_; }
  /// A member, which must be there.
  JsonPlace at(std::string_view key) const;
  /// A member, unless it is absent or null.
  std::optional<JsonPlace> find(std::string_view key) const;
  /// Notes the members of an object that are not among these, unless they are null.
  void know(std::initializer_list<std::string_view> keys) const;
  /// The paths of all members so noted in this file, in order; of an array's elements without the
  /// number, "added_tokens[].colour".
  std::vector<std::string> unknown() const { return {unknown_->begin(), unknown_->end()}; }
  /// Refuses a member that is neither absent nor null nor this.
  void expect(std::string_view key, const boost::json::value& wanted) const;

  const boost::json::object& object() const;
  std::string text() const;
  bool flag() const;
  std::int64_t count(std::int64_t most = INT32_MAX) const;  // from 0 on
  double number() const;
  std::vector<JsonPlace> items() const;
  JsonPlace item(std::size_t i) const;  // which must be there

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(file_, ": ", path_, path_.empty() ? "" : " ", parts...));
  }

 private:
  using Paths = std::set<std::string>;
  JsonPlace(const boost::json::value& value, std::string file, std::string path,
            std::shared_ptr<Paths> unknown)
      : value_(&value),
        file_(std::move(file)),
        path_(std::move(path)),
        unknown_(std::move(unknown)) {}
  [[noreturn]] void fail_kind(const char* wanted) const;
  JsonPlace member(std::string_view key, const boost::json::value& value) const;
  const boost::json::value* value_;
  std::string file_, path_;
  std::shared_ptr<Paths> unknown_;
};

}  // namespace hybrid_trainer
