#include "src/series/plain_number.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace hybrid_trainer {

std::optional<double> plain_number(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  if (begin == std::string::npos) return std::nullopt;
  const bool has_plus = text[begin] == '+' && begin < end && text[begin + 1] != '-';
  const char* const last = text.data() + end + 1;
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin + (has_plus ? 1 : 0), last, value);
  const bool is_out_of_range = error == std::errc::result_out_of_range && stop == last;
  if (is_out_of_range) value = std::strtod(text.c_str() + begin, nullptr);  // 0, or infinite
  if ((error != std::errc{} && !is_out_of_range) || stop != last || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace hybrid_trainer
