#include "memory/memory_monitor.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

constexpr std::size_t kWindow = 16;  // number of a phase's steps that a trend covers
constexpr double kStepsAhead = 100;  // number of steps by which a trend is extrapolated
constexpr double kMinGrowth = 0.001;

// Limits of the levels, as shares of the budget.
constexpr double kTarget = 0.90, kWarning = 0.92, kCritical = 0.95, kEmergency = 0.97;

void push(std::vector<double>& window, double value) {
  if (window.size() == kWindow) window.erase(window.begin());
  window.push_back(value);
}

double slope(const std::vector<double>& window) {
  if (window.size() < kWindow) return 0;
  return (window.back() - window.front()) / static_cast<double>(kWindow - 1);
}

}  // namespace

const char* name_of(MemoryStatus status) {
  constexpr std::array kNames{"normal", "target", "warning", "critical", "emergency"};
  return kNames[static_cast<std::size_t>(status)];
}

std::int64_t MemoryMonitor::recommended_micro_batch() const {
  double most = 0;
  for (const History& history : history_)
    if (history.max_examples > 0)
      most = most == 0 ? history.max_examples : std::min(most, history.max_examples);
  return static_cast<std::int64_t>(most);
}

MemoryReading MemoryMonitor::observe(Phase phase, const MemoryUse& use, std::int64_t micro_batch) {
  History& history = history_[static_cast<std::size_t>(phase)];
  push(history.peaks, static_cast<double>(use.peak_total));
  // Excludes batches, because Predict keeps more batches in each step until the decision.
  const std::size_t data = use.live[static_cast<std::size_t>(MemoryKind::kData)];
  push(history.live, static_cast<double>(use.live_total - data));
  MemoryReading reading;
  const std::vector<double>& live = history.live;
  reading.leaks =
      live.size() == kWindow &&
      std::adjacent_find(live.begin(), live.end(), std::greater_equal<>()) == live.end() &&
      live.back() > (1 + kMinGrowth) * live.front();
  if (!budget_bytes_) return reading;
  const auto budget = static_cast<double>(*budget_bytes_);
  double growing = 0;
  for (const MemoryKind kind :
       {MemoryKind::kActivations, MemoryKind::kLogits, MemoryKind::kWorkspace})
    growing += static_cast<double>(use.peak[static_cast<std::size_t>(kind)]);
  if (growing > 0) {
    const double room = kTarget * budget - history.peaks.back();
    history.max_examples =
        std::max(1.0, std::floor(static_cast<double>(micro_batch) * (1 + room / growing)));
  }
  reading.recommended_micro_batch = recommended_micro_batch();
  reading.share = history.peaks.back() / budget;
  const double ahead = reading.share + kStepsAhead * slope(history.peaks) / budget;
  reading.risk = std::clamp((ahead - kTarget) / (1 - kTarget), 0.0, 1.0);
  for (const double threshold : {kTarget, kWarning, kCritical, kEmergency}) {
    if (reading.share < threshold) break;
    reading.status = static_cast<MemoryStatus>(static_cast<int>(reading.status) + 1);
  }
  return reading;
}

}  // namespace hybrid_trainer
