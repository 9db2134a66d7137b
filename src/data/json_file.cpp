#include "json_file.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/strict_json.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;
constexpr JsonLimits kLimits{.max_bytes = std::size_t{256} << 20, .max_depth = 32};

[[noreturn]] void throw_wrong_member(const json::object& object, const char* key,
                                     const char* wanted, const std::filesystem::path& path) {
  const json::value* value = object.if_contains(key);
  std::string got = value == nullptr ? "nothing" : json::serialize(*value);
  if (got.size() > 40) got = got.substr(0, 40) + "…";
  throw DataError(concat(path.string(), ": key \"", key, "\" is ", got, "; want ", wanted));
}

}  // namespace

json::object read_json_object(const std::filesystem::path& path) {
  json::value value = read_json(path, kLimits);
  if (!value.is_object()) throw DataError(concat(path.string(), ": got no object, want {…}"));
  return std::move(value.as_object());
}

void write_json(const json::value& value, const std::filesystem::path& path) {
  write_file(path, json::serialize(value) + "\n");
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
