#include "src/data/json_place.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

std::string shortened(const boost::json::value& value) {
  std::string text = boost::json::serialize(value);
  return text.size() > 60 ? text.substr(0, 60) + "…" : text;
}

}  // namespace

void JsonPlace::fail_kind(const char* wanted) const {
  fail("is ", shortened(*value_), "; want ", wanted);
}

const boost::json::object& JsonPlace::object() const {
  if (!value_->is_object()) fail_kind("an object");
  return value_->get_object();
}

std::optional<JsonPlace> JsonPlace::find(std::string_view key) const {
  const boost::json::value* member = object().if_contains(key);
  if (member == nullptr || member->is_null()) return {};
  return this->member(key, *member);
}

JsonPlace JsonPlace::member(std::string_view key, const boost::json::value& value) const {
  return {value, file_, concat(path_, path_.empty() ? "" : ".", key), unknown_};
}

JsonPlace JsonPlace::at(std::string_view key) const {
  if (auto member = find(key)) return *member;
  fail("has no \"", key, "\"");
}

void JsonPlace::know(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : object()) {
    if (value.is_null() || std::ranges::find(keys, std::string_view(key)) != keys.end()) continue;
    const std::string path = member(key, value).path_;
    std::string without_numbers;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const bool in_brackets = path[i] >= '0' && path[i] <= '9' && without_numbers.ends_with('[');
      if (!in_brackets) without_numbers += path[i];
    }
    unknown_->insert(without_numbers);
  }
}

void JsonPlace::expect(std::string_view key, const boost::json::value& wanted) const {
  const auto member = find(key);
  if (!member || member->value() == wanted) return;
  member->fail("is ", shortened(member->value()), ", which is not supported; want ",
               shortened(wanted));
}

std::string JsonPlace::text() const {
  if (!value_->is_string()) fail_kind("a string");
  return std::string(value_->get_string());
}

bool JsonPlace::flag() const {
  if (!value_->is_bool()) fail_kind("true or false");
  return value_->get_bool();
}

std::int64_t JsonPlace::count(std::int64_t most) const {
  const bool holds = value_->is_int64() && value_->get_int64() >= 0 && value_->get_int64() <= most;
  if (!holds) fail_kind("an integer from 0 on");
  return value_->get_int64();
}

double JsonPlace::number() const {
  if (!value_->is_number()) fail_kind("a number");
  return value_->to_number<double>();
}

std::vector<JsonPlace> JsonPlace::items() const {
  if (!value_->is_array()) fail_kind("an array");
  std::vector<JsonPlace> items;
  while (items.size() < value_->get_array().size()) items.push_back(item(items.size()));
  return items;
}

JsonPlace JsonPlace::item(std::size_t i) const {
  return {value_->get_array()[i], file_, concat(path_, "[", i, "]"), unknown_};
}

}  // namespace hybrid_trainer
