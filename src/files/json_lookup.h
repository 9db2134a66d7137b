#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Return the value at a JSON pointer such as "/training/steps", for files that may be damaged.
/// Without such a text, text_at returns "". Without such a number, number_at returns nullopt and
/// count_at, which reads whole numbers, returns 0.
inline std::string text_at(const boost::json::value& from, std::string_view pointer) {
  boost::json::error_code absent;
  const boost::json::value* const found = from.find_pointer(pointer, absent);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
}
inline std::optional<double> number_at(const boost::json::value& from, std::string_view pointer) {
  boost::json::error_code absent;
  const boost::json::value* const found = from.find_pointer(pointer, absent);
  if (found == nullptr || !found->is_number()) return {};
  return found->to_number<double>();
}
inline std::int64_t count_at(const boost::json::value& from, std::string_view pointer) {
  boost::json::error_code absent;
  const boost::json::value* const found = from.find_pointer(pointer, absent);
  return found != nullptr && found->is_int64() ? found->get_int64() : 0;
}

}  // namespace hybrid_trainer
