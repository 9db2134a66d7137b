#include "hybrid_trainer/memory/memory_report.h"

#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {
namespace {

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(text.size() < width ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

constexpr std::size_t kNameWidth = 16;
constexpr std::size_t kNumberWidth = 16;

}  // namespace

std::string memory_line(const MemoryUse& use) {
  std::string kinds;
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    if (use.live[k] == 0) continue;
    kinds += (kinds.empty() ? "" : ", ") + std::string(name_of(static_cast<MemoryKind>(k))) + " " +
             units::bytes(use.live[k]);
  }
  return units::bytes(use.live_total) + (kinds.empty() ? "" : " (" + kinds + ")");
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
      row += padded(units::bytes(live(use)), kNumberWidth, true) +
             padded(units::bytes(peak(use)), kNumberWidth, true);
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
