#include "src/io/field_values.h"

#include <boost/json/serialize.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

std::optional<double> number_in(const json::value& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return {};
}

}  // namespace

const FieldNode* find_field(const FieldNode& group, std::string_view name) {
  for (const FieldNode& field : group.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

const FieldNode* named_element(const FieldNode& list, const std::string& rest) {
  const std::string name = rest.substr(0, rest.rfind('.'));
  for (const FieldNode& element : list.elements) {
    if (element.name == name) return &element;
  }
  return nullptr;
}

const FieldNode* field_at(const FieldNode& root, const std::string& path) {
  const FieldNode* field = &root;
  for (std::size_t begin = 0; field != nullptr && begin <= path.size();) {
    if (field->is_named) {
      field = named_element(*field, path.substr(begin));
      begin = path.rfind('.') + 1;
      if (field == nullptr) return nullptr;
    }
    const std::size_t end = std::min(path.find('.', begin), path.size());
    field = find_field(*field, std::string_view(path).substr(begin, end - begin));
    begin = end + 1;
  }
  return field;
}

std::string brief(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_double()) {
    const double number = value.get_double();
    return shortest(number) +
           (std::trunc(number) == number ? " written with a point or an exponent" : "");
  }
  const std::string text = json_line(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

const char* wanted(const FieldNode& field) {
  if (field.is_named) return "an object of objects, {\"NAME\": {\"KEY\": VALUE}}";
  if (field.is_list) return "a list of objects";
  switch (field.value.index()) {
    case 0:
      return "an object";
    case 1:
      return "true or false";
    case 2:
      return "a whole number";
    case 3:
      return "a number";
    case 4:
      return field.is_size ? "bytes: 1000000, \"500MB\", \"16GiB\"" : "a text";
    default:
      return "a list of numbers";
  }
}

std::optional<FieldValue> converted(const FieldNode& field, const json::value& value) {
  if (field.is_list) return {};
  if (field.is_size && value.is_int64()) return std::to_string(value.get_int64());
  if (std::holds_alternative<bool>(field.value) && value.is_bool()) return value.get_bool();
  if (std::holds_alternative<std::string>(field.value) && value.is_string()) {
    return std::string(value.get_string());
  }
  if (std::holds_alternative<std::int64_t>(field.value) && value.is_int64())
    return value.get_int64();
  if (std::holds_alternative<double>(field.value)) {
    if (const auto number = number_in(value)) return *number;
  }
  if (std::holds_alternative<std::vector<double>>(field.value) && value.is_array()) {
    std::vector<double> numbers;
    for (const json::value& element : value.get_array()) {
      const auto number = number_in(element);
      if (!number) return {};
      numbers.push_back(*number);
    }
    return numbers;
  }
  return {};
}

std::string value_problem(const FieldNode& field, const std::string& path,
                          const FieldValue& value) {
  const auto out_of_range = [&](double number) {
    return field.range.contains(number) ? "" : range_problem(path, number, field.range);
  };
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if (*whole < field.lowest || *whole > field.highest) {
      return concat(path, ": got ", *whole, ", want a whole number from ", field.lowest, " to ",
                    field.highest);
    }
    return out_of_range(static_cast<double>(*whole));
  }
  if (const auto* number = std::get_if<double>(&value)) return out_of_range(*number);
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (double number : *numbers) {
      const std::string problem = out_of_range(number);
      if (!problem.empty()) return problem;
    }
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    constexpr std::uint64_t kLeastPlain = 4096;  // bytes that need no unit
    const auto size = field.is_size ? MemorySize::parse(*text) : std::nullopt;
    if (field.is_size && !size)
      return concat(path, ": got ", *text, ", want bytes: 1000000, 500MB, 16GiB");
    if (size && size->bytes < kLeastPlain && !MemorySize::has_unit(*text))
      return concat(path, ": got ", *text, ", which is ", size->bytes,
                    " bytes; give the unit: ", *text, "GiB, ", *text, "MB or ", *text, "B");
    bool known = field.choices.empty();
    for (const std::string& choice : field.choices) known = known || choice == *text;
    if (!known) return choice_problem(path, *text, field.choices);
  }
  return "";
}

}  // namespace hybrid_trainer
