#include "hybrid_trainer/core/units.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::units {
namespace {

std::string formatted(const char* format, double value, const char* unit) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value, unit);
  return text.data();
}

/// Three significant digits of a value below 1000.
std::string three_digits(double value, const char* unit) {
  return formatted(value < 9.995 ? "%.2f%s" : value < 99.95 ? "%.1f%s" : "%.0f%s", value, unit);
}

/// In the first of the units, each a thousand of the one before, that leaves less than 1000.
std::string scaled(double value, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  return unit == 0 ? formatted("%.0f%s", value, units[0]) : three_digits(value, units[unit]);
}

std::string two_parts(std::int64_t seconds, std::int64_t large, const char* large_name,
                      std::int64_t small, const char* small_name) {
  const std::int64_t rest = seconds % large / small;
  return concat(seconds / large, large_name, rest < 10 ? " 0" : " ", rest, small_name);
}

}  // namespace

std::string fixed(double value, int decimals) {
  std::array<char, 400> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string count(double value) { return scaled(value, {"", "k", "M", "G", "T"}); }

std::string grouped(std::int64_t value) {
  std::string text = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string millions(std::int64_t value) {
  return value < 10'000 ? std::to_string(value) : fixed(static_cast<double>(value) / 1e6, 2) + " M";
}

std::string bytes(std::size_t bytes) {
  return scaled(static_cast<double>(bytes), {" B", " kB", " MB", " GB", " TB"});
}

std::string duration(double seconds) {
  if (!(std::abs(seconds) <= 1e12)) return "?";  // nor NaN
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (seconds < 9.95) return formatted("%.1f%s", seconds, "s");
  if (whole < 60) return concat(whole, "s");
  if (whole < 3600) return two_parts(whole, 60, "m", 1, "s");
  if (whole < 86400) return two_parts(whole, 3600, "h", 60, "m");
  return two_parts(whole, 86400, "d", 3600, "h");
}

}  // namespace hybrid_trainer::units
