#include "src/core/messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <numeric>
#include <set>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::units {

namespace {

std::string formatted(const char* format, double value, const char* unit) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value, unit);
  return text.data();
}

/// Formats a value below 1000 with three significant digits.
std::string three_digits(double value, const char* unit) {
  return formatted(value < 9.995 ? "%.2f%s" : value < 99.95 ? "%.1f%s" : "%.0f%s", value, unit);
}

/// Formats a value in the smallest unit in which the number is below 1000.
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
  if (!(std::abs(seconds) <= 1e12)) return "?";  // includes NaN
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (seconds < 9.95) return formatted("%.1f%s", seconds, "s");
  if (whole < 60) return concat(whole, "s");
  if (whole < 3600) return two_parts(whole, 60, "m", 1, "s");
  if (whole < 86400) return two_parts(whole, 3600, "h", 60, "m");
  return two_parts(whole, 86400, "d", 3600, "h");
}

}  // namespace hybrid_trainer::units

namespace hybrid_trainer {

namespace {

/// Returns the optimal string alignment distance, from three rows of the table.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::mutex mutex;
std::ostream* output = &std::cerr;
std::set<std::string> said;

/// Shortens a text to 4000 bytes, because names in files may be arbitrarily long.
std::string shortened(std::string text) {
  constexpr std::size_t kLongest = 4000;
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within UTF-8
  return text.substr(0, end) + "…";
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = name.size() / 2 + 1;
  if (name.size() > 200) return best;
  for (const auto& candidate : candidates) {
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t insertions = longer - std::min(name.size(), candidate.size());
    if (insertions >= best_distance) continue;  // the distance is at least `insertions`
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string name_hint(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) return "; did you mean " + nearest + "?";
  return "; valid: " + join(candidates);
}

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  const bool controls =
      std::ranges::any_of(word, [](unsigned char c) { return std::iscntrl(c) != 0; });
  std::string quoted = controls ? "$'" : "'";
  for (const char character : word) {
    const auto byte = static_cast<unsigned char>(character);
    if (std::iscntrl(byte) != 0) {  // escaped for one line and for terminals
      constexpr const char* kDigits = "0123456789abcdef";
      ((quoted += "\\x") += kDigits[byte >> 4]) += kDigits[byte & 15];
    } else if (controls && (character == '\'' || character == '\\')) {
      (quoted += '\\') += character;
    } else {
      quoted += character == '\'' ? "'\\''" : std::string(1, character);
    }
  }
  return quoted + "'";
}

std::string shell_path(const std::filesystem::path& path) {
  const std::string text = path.string();
  return shell_word(text.starts_with('-') ? "./" + text : text);
}

void warn(const std::string& where, const std::string& what) {
  const std::lock_guard lock(mutex);
  if (output != nullptr && said.insert(what).second)
    *output << concat("warning: ", where, ": ", shortened(what), "\n") << std::flush;
}

void send_warnings_to(std::ostream* out) {
  const std::lock_guard lock(mutex);
  output = out;
  said.clear();
}

}  // namespace hybrid_trainer
