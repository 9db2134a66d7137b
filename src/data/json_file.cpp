#include "json_file.h"

#include <boost/json/basic_parser_impl.hpp>
#include <set>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;
constexpr std::size_t kLargestFile = std::size_t{256} << 20;
constexpr std::size_t kDeepest = 32;

/// Parser callbacks that only look for a key that occurs twice in one object.
struct DuplicateKeyFinder {
  using error_code = json::error_code;
  using string_view = json::string_view;
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);

  std::vector<std::set<std::string>> keys;  // of every object that is open
  std::string partial;
  bool found = false;  // if so, `partial` is the key

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    keys.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, error_code&) {
    keys.pop_back();
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t, error_code&) { return true; }
  bool on_key_part(string_view part, std::size_t, error_code&) {
    partial.append(part.data(), part.size());
    return true;
  }
  bool on_key(string_view part, std::size_t, error_code& error) {
    partial.append(part.data(), part.size());
    found = !keys.back().insert(partial).second;
    if (found) {
      error = json::error::exception;
      return false;
    }
    partial.clear();
    return true;
  }
  bool on_string_part(string_view, std::size_t, error_code&) { return true; }
  bool on_string(string_view, std::size_t, error_code&) { return true; }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(std::int64_t, string_view, error_code&) { return true; }
  bool on_uint64(std::uint64_t, string_view, error_code&) { return true; }
  bool on_double(double, string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

[[noreturn]] void throw_wrong_member(const json::object& object, const char* key,
                                     const char* wanted, const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  std::string got = value == nullptr ? "nothing" : json::serialize(*value);
  if (got.size() > 40) got = got.substr(0, 40) + "…";
  throw DataError(concat(path.string(), ": key \"", key, "\" is ", got, "; want ", wanted));
}

}  // namespace

json::object read_json_object(const std::filesystem::path& path) {
  const std::string text = read_file(path, kLargestFile);
  json::parse_options options;
  options.max_depth = kDeepest;
  json::basic_parser<DuplicateKeyFinder> finder(options);
  json::error_code error;
  const std::size_t read = finder.write_some(false, text.data(), text.size(), error);
  if (finder.handler().found) {
    throw DataError(concat(path.string(), ": key \"", finder.handler().partial,
                           "\" comes twice in one object, at byte ", read));
  }
  if (error)
    throw DataError(concat(path.string(), " is not JSON: ", error.message(), " at byte ", read));
  json::value value = json::parse(text, error, {}, options);
  if (error) throw DataError(concat(path.string(), " is not JSON: ", error.message()));
  if (!value.is_object()) throw DataError(concat(path.string(), ": got no object, want {…}"));
  return std::move(value.as_object());
}

void write_json(const json::value& value, const std::filesystem::path& path) {
  write_file(path, json::serialize(value) + "\n");
}

const json::object& object_member(const json::object& object, const char* key,
                                  const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_object()) throw_wrong_member(object, key, "an object", path);
  return value->as_object();
}

const json::array& array_member(const json::object& object, const char* key,
                                const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_array()) throw_wrong_member(object, key, "an array", path);
  return value->as_array();
}

std::string string_member(const json::object& object, const char* key,
                          const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) throw_wrong_member(object, key, "a string", path);
  return std::string(value->as_string());
}

std::int64_t count_member(const json::object& object, const char* key,
                          const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  const bool holds = value != nullptr && value->is_int64() && value->as_int64() >= 0 &&
                     value->as_int64() <= (std::int64_t{1} << 53);
  if (!holds) throw_wrong_member(object, key, "an integer of at least 0", path);
  return value->as_int64();
}

double number_member(const json::object& object, const char* key,
                     const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) throw_wrong_member(object, key, "a number", path);
  return value->to_number<double>();
}

}  // namespace hybrid_trainer
