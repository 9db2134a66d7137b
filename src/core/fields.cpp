#include "hybrid_trainer/core/fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "src/core/messages.h"

namespace hybrid_trainer {

namespace {

using Unit = std::pair<const char*, std::uint64_t>;

constexpr std::array kUnits{
    Unit{"TiB", 1ull << 40},
    Unit{"TB", 1'000'000'000'000},
    Unit{"GiB", 1ull << 30},
    Unit{"GB", 1'000'000'000},
    Unit{"MiB", 1ull << 20},
    Unit{"MB", 1'000'000},
    Unit{"KiB", 1ull << 10},
    Unit{"kB", 1'000},
    Unit{"B", 1},
    Unit{"", 1},
};

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::optional<MemorySize> MemorySize::parse(std::string_view text) {
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{} || text.starts_with('-')) return {};
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, size] : kUnits) {
    if (!same_letters(unit, name)) continue;
    const double bytes = number * static_cast<double>(size);
    if (!(bytes <= 0x1p62)) return {};
    std::uint64_t whole = 0;  // exact, unlike a double
    const auto [after, wrong] = std::from_chars(text.data(), end, whole);
    const bool is_whole = wrong == std::errc{} && after == rest;
    return MemorySize{is_whole ? whole * size : static_cast<std::uint64_t>(bytes)};
  }
  return {};
}

bool MemorySize::has_unit(std::string_view text) {
  return text == "0" || text.find_first_not_of("0123456789.") != text.npos;
}

std::string MemorySize::text() const {
  for (const auto& [name, size] : kUnits) {
    if (bytes > 0 && size > 1 && bytes % size == 0) return std::to_string(bytes / size) + name;
  }
  return std::to_string(bytes);
}

KeyNeed KeyNeed::of(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                    const std::string& why, KeyTest::Kind kind) {
  KeyNeed need{{}, why};
  for (const std::string& key : keys) need.any_of.push_back({key, kind, values});
  return need;
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  // Text between two stars matches at its first occurrence.
  while ((star = pattern.find('*')) != std::string_view::npos) {
    const std::size_t at = name.find(pattern.substr(0, star));
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + star);
    pattern.remove_prefix(star + 1);
  }
  return name.ends_with(pattern);
}

std::string Range::text() const {
  const auto end = [](double value) {
    return std::isinf(value) ? std::string(value < 0 ? "-inf" : "inf") : concat(value);
  };
  return concat(low_open || std::isinf(low) ? "(" : "[", end(low), ", ", end(high),
                high_open || std::isinf(high) ? ")" : "]");
}

std::string range_problem(const std::string& path, double value, const Range& range) {
  return concat(path, ": got ", value, ", want a number in ", range.text());
}

std::string text_of(const std::vector<LetterWord>& letters) {
  std::string text;
  for (std::size_t i = 0; i < letters.size(); ++i)
    text += concat(i == 0                    ? ""
                   : i + 1 == letters.size() ? " and "
                                             : ", ",
                   std::string(1, letters[i].letter), " (", letters[i].word, ")");
  return text;
}

std::string choice_problem(const std::string& path, const std::string& value,
                           const std::vector<std::string>& choices) {
  std::vector<std::string> shown = choices;
  std::ranges::replace(shown, std::string(), std::string("\"\""));
  return concat(path, ": got \"", value, "\"", name_hint(value, shown));
}

}  // namespace hybrid_trainer
