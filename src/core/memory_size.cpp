#include "hybrid_trainer/core/memory_size.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace hybrid_trainer {
namespace {

using Unit = std::pair<const char*, std::uint64_t>;

/// Larger ones first.
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
    std::uint64_t whole = 0;  // exact, where a double is not
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

}  // namespace hybrid_trainer
