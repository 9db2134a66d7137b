#include "src/data/text/json_place.h"

#include <algorithm>

#include "src/files/json.h"
#include "src/files/output_file.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr JsonLimits kLimits{.max_bytes = std::size_t{256} << 20, .max_depth = 32};

/// Maximum bytes of a key in a path and of a path, and maximum number of unknown keys.
constexpr std::size_t kLongestKey = 100, kLongestJsonPath = 400, kMaxUnknown = 100;

std::string_view first_of(std::string_view text, std::size_t bytes) {
  return text.substr(0, whole_characters(text, bytes));
}

}  // namespace

json::object read_json_object(const FolderFiles& folder, const std::string& name) {
  json::value value = folder.json(name, kLimits);
  if (!value.is_object())
    throw DataError(concat((folder.path() / name).string(), ": is not a JSON object; want {…}"));
  return std::move(value.as_object());
}

void write_json(const json::value& value, const std::filesystem::path& path) {
  write_file(path, json::serialize(value) + "\n");
}

std::string shortened(const boost::json::value& value) {
  constexpr std::size_t kShown = 60;
  boost::json::serializer serializer;
  serializer.reset(&value);
  char text[kShown + 4];
  const boost::json::string_view start = serializer.read(text, sizeof text);
  if (serializer.done() && start.size() <= kShown) return std::string(start);
  return std::string(first_of({start.data(), start.size()}, kShown)) + "…";
}

void JsonPlace::fail_kind(const char* wanted) const {
  fail("is ", shortened(*value_), "; want ", wanted);
}

const boost::json::object& JsonPlace::object() const {
  if (const boost::json::object* object = value_->if_object()) return *object;
  fail_kind("an object");
}

const boost::json::array& JsonPlace::array() const {
  if (const boost::json::array* array = value_->if_array()) return *array;
  fail_kind("an array");
}

std::optional<JsonPlace> JsonPlace::find(std::string_view key) const {
  const boost::json::value* member = object().if_contains(key);
  if (member == nullptr || member->is_null()) return {};
  return this->member(key, *member);
}

JsonPlace JsonPlace::member(std::string_view key, const boost::json::value& value) const {
  if (path_.size() > kLongestJsonPath) return {value, path_, file_};
  return {value, concat(path_, path_.empty() ? "" : ".", first_of(key, kLongestKey)), file_};
}

JsonPlace JsonPlace::at(std::string_view key) const {
  if (auto member = find(key)) return *member;
  fail("has no \"", first_of(key, kLongestKey), "\"");
}

void JsonPlace::know(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : object()) {
    if (value.is_null() || std::ranges::find(keys, std::string_view(key)) != keys.end()) continue;
    if (file_->unknown.size() == kMaxUnknown) return;
    const std::string path = member(key, value).path_;
    std::string without_numbers;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const bool in_brackets = path[i] >= '0' && path[i] <= '9' && without_numbers.ends_with('[');
      if (!in_brackets) without_numbers += path[i];
    }
    file_->unknown.insert(without_numbers);
  }
}

void JsonPlace::expect(std::string_view key, const boost::json::value& wanted) const {
  const auto member = find(key);
  if (!member || member->value() == wanted) return;
  member->fail("is ", shortened(member->value()), ", which is not supported; want ",
               shortened(wanted));
}

std::string JsonPlace::text() const {
  if (const boost::json::string* text = value_->if_string()) return std::string(*text);
  fail_kind("a string");
}

bool JsonPlace::flag() const {
  if (const bool* flag = value_->if_bool()) return *flag;
  fail_kind("true or false");
}

bool JsonPlace::flag(std::string_view key, bool otherwise) const {
  const auto member = find(key);
  return member ? member->flag() : otherwise;
}

std::int64_t JsonPlace::count(std::int64_t most) const {
  const std::int64_t* count = value_->if_int64();
  if (count != nullptr && *count >= 0 && *count <= most) return *count;
  fail_kind("an integer of at least 0");
}

double JsonPlace::number() const {
  if (!value_->is_number()) fail_kind("a number");
  return value_->to_number<double>();
}

JsonPlace JsonPlace::item(std::size_t i) const {
  if (path_.size() > kLongestJsonPath) return {array().at(i), path_, file_};
  return {array().at(i), concat(path_, "[", i, "]"), file_};
}

}  // namespace hybrid_trainer
