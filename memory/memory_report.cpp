#include "hybrid_trainer/memory/memory_report.h"

#include <cstdio>

namespace hybrid_trainer {
namespace {

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(text.size() < width ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

constexpr std::size_t kNameWidth = 16;
constexpr std::size_t kNumberWidth = 16;

}  // namespace

std::string bytes_text(std::size_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit < 2 ? "%.1f %s" : "%.2f %s", value, kUnits[unit]);
  return text.data();
}

std::string memory_line(const MemoryUse& use) {
  std::string kinds;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    if (use.live[k] == 0) continue;
    kinds += (kinds.empty() ? "" : ", ") + std::string(name_of(static_cast<MemoryKind>(k))) + " " +
             bytes_text(use.live[k]);
  }
  return bytes_text(use.live_total) + (kinds.empty() ? "" : " (" + kinds + ")");
}

std::string memory_table(const std::vector<std::shared_ptr<const MemoryPool>>& pools) {
  std::vector<MemoryUse> uses;
  std::string table = padded("memory", kNameWidth, false);
  for (const auto& pool : pools) {
    uses.push_back(pool->use());
    table += padded(pool->name() + " now", kNumberWidth, true) +
             padded(pool->name() + " peak", kNumberWidth, true);
  }
  table += "\n";
  const auto add_row = [&](const std::string& name, auto live, auto peak) {
    std::string row = padded(name, kNameWidth, false);
    bool any = false;
    for (const MemoryUse& use : uses) {
      any = any || peak(use) > 0;
      row += padded(bytes_text(live(use)), kNumberWidth, true) +
             padded(bytes_text(peak(use)), kNumberWidth, true);
    }
    if (any) table += row + "\n";
  };
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    add_row(
        name_of(static_cast<MemoryKind>(k)), [k](const MemoryUse& use) { return use.live[k]; },
        [k](const MemoryUse& use) { return use.peak[k]; });
  }
  add_row(
      "total", [](const MemoryUse& use) { return use.live_total; },
      [](const MemoryUse& use) { return use.peak_total; });
  return table;
}

}  // namespace hybrid_trainer
