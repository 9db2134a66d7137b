#include "src/compare/spec_problems.h"

#include <algorithm>
#include <boost/json/value.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {
namespace json = boost::json;

std::string in_brief(const json::value& value) {
  const std::string text = json_line(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

void SpecProblems::note(const std::string& path, const std::string& problem) {
  const auto line = lines_.find(path);
  problems_.push_back(line == lines_.end()
                          ? concat(file_, ": ", path, ": ", problem)
                          : concat(file_, ":", line->second, ": ", path, ": ", problem));
}

void SpecProblems::check_keys(const json::object& object, const std::string& path,
                              const std::vector<std::string>& known) {
  for (const auto& [key, value] : object) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      note(path + std::string(key), "unknown key" + name_hint(std::string(key), known));
  }
}

std::string SpecProblems::text(const json::object& object, const char* key,
                               const std::string& path) {
  const json::value* value = object.if_contains(key);
  if (value != nullptr && value->is_string() && !value->get_string().empty())
    return std::string(value->get_string());
  note(path + key,
       value == nullptr ? "is missing" : concat("got ", in_brief(*value), ", want a text"));
  return "";
}

std::vector<std::int64_t> SpecProblems::whole_numbers(const json::object& object, const char* key,
                                                      const std::string& path,
                                                      std::int64_t lowest) {
  std::vector<std::int64_t> numbers;
  const json::value* list = object.if_contains(key);
  if (list == nullptr || !list->is_array() || list->get_array().empty()) {
    note(path + key, list == nullptr ? "is missing" : "want a list of at least one whole number");
    return numbers;
  }
  for (const json::value& value : list->get_array()) {
    if (!value.is_int64() || value.get_int64() < lowest) {
      note(path + key,
           concat("got ", in_brief(value), ", want whole numbers from ", lowest, " on"));
      return {};
    }
    numbers.push_back(value.get_int64());
  }
  return numbers;
}

}  // namespace hybrid_trainer
