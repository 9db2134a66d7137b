#include "hybrid_trainer/files/python_floats.h"

#include <boost/json.hpp>
#include <cmath>
#include <limits>

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr const char* kFloatKey = "__float__";
constexpr std::string_view kFloatNames[] = {"NaN", "Infinity", "-Infinity"};

/// The name that the text begins with; empty where there is none.
std::string_view float_name_at(std::string_view text) {
  for (const std::string_view name : kFloatNames)
    if (text.starts_with(name)) return name;
  return {};
}

/// The end of the string whose first quote is at `begin`.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  for (std::size_t at = begin + 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return text.size();
}

}  // namespace

std::string with_named_floats(std::string_view text) {
  std::string named;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view name = float_name_at(text.substr(at));
    if (!name.empty()) {
      named.append("{\"").append(kFloatKey).append("\": \"").append(name).append("\"}");
      at += name.size();
    } else {
      const std::size_t end = text[at] == '"' ? end_of_string(text, at) : at + 1;
      named.append(text.substr(at, end - at));
      at = end;
    }
  }
  return named;
}

std::optional<double> number_of(const json::value& value) {
  if (value.is_number()) return value.to_number<double>();
  const json::value* name = value.is_object() && value.get_object().size() == 1
                                ? value.get_object().if_contains(kFloatKey)
                                : nullptr;
  if (name == nullptr) return {};
  if (*name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*name == "Infinity") return std::numeric_limits<double>::infinity();
  if (*name == "-Infinity") return -std::numeric_limits<double>::infinity();
  return {};
}

json::value named_float(double number) {
  if (std::isfinite(number)) return number;
  const char* name = std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  return json::object{{kFloatKey, name}};
}

}  // namespace hybrid_trainer
