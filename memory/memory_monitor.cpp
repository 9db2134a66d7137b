#include "memory/memory_monitor.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kWindow = 16;     // steps of a phase that a trend is taken from
constexpr double kStepsAhead = 100;     // of the trend
constexpr double kLeastGrowth = 0.001;  // of what lives, over the window, to be a leak

struct MemoryProfile {
  const char* name;
  double target, warning, critical, emergency;
};

constexpr std::array kProfiles{
    MemoryProfile{"aggressive", 0.92, 0.94, 0.96, 0.98},
    MemoryProfile{"balanced", 0.90, 0.92, 0.95, 0.97},
    MemoryProfile{"conservative", 0.85, 0.88, 0.92, 0.95},
};

void push(std::vector<double>& window, double value) {
  if (window.size() == kWindow) window.erase(window.begin());
  window.push_back(value);
}

/// Growth a step, over a full window; 0 before.
double slope(const std::vector<double>& window) {
  if (window.size() < kWindow) return 0;
  return (window.back() - window.front()) / static_cast<double>(kWindow - 1);
}

}  // namespace

const std::vector<std::string>& memory_profile_names() {
  static const std::vector<std::string> names = names_of(kProfiles);
  return names;
}

const char* name_of(MemoryStatus status) {
  constexpr std::array kNames{"normal", "target", "warning", "critical", "emergency"};
  return kNames[static_cast<std::size_t>(status)];
}

MemoryMonitor::MemoryMonitor(const std::string& profile, std::optional<std::size_t> budget_bytes)
    : budget_bytes_(budget_bytes) {
  const MemoryProfile& row = named_row(kProfiles, "memory.profile", profile);
  thresholds_ = {row.target, row.warning, row.critical, row.emergency};
}

std::int64_t MemoryMonitor::recommended_micro_batch() const {
  double most = 0;
  for (const History& history : history_)
    if (history.most_examples > 0)
      most = most == 0 ? history.most_examples : std::min(most, history.most_examples);
  return static_cast<std::int64_t>(most);
}

MemoryReading MemoryMonitor::observe(Phase phase, const MemoryUse& use, std::int64_t micro_batch) {
  History& history = history_[static_cast<std::size_t>(phase)];
  push(history.peaks, static_cast<double>(use.peak_total));
  // Without batches: Predict holds more of them with each step until it is decided on.
  const std::size_t data = use.live[static_cast<std::size_t>(MemoryKind::kData)];
  push(history.live, static_cast<double>(use.live_total - data));
  MemoryReading reading;
  const std::vector<double>& live = history.live;
  reading.leaks =
      live.size() == kWindow &&
      std::adjacent_find(live.begin(), live.end(), std::greater_equal<>()) == live.end() &&
      live.back() > (1 + kLeastGrowth) * live.front();
  if (!budget_bytes_) return reading;
  const auto budget = static_cast<double>(*budget_bytes_);
  double growing = 0;
  for (const MemoryKind kind :
       {MemoryKind::kActivations, MemoryKind::kLogits, MemoryKind::kWorkspace})
    growing += static_cast<double>(use.peak[static_cast<std::size_t>(kind)]);
  if (growing > 0) {
    const double room = thresholds_.target * budget - history.peaks.back();
    history.most_examples =
        std::max(1.0, std::floor(static_cast<double>(micro_batch) * (1 + room / growing)));
  }
  reading.recommended_micro_batch = recommended_micro_batch();
  reading.share = history.peaks.back() / budget;
  const double ahead = reading.share + kStepsAhead * slope(history.peaks) / budget;
  reading.risk = std::clamp((ahead - thresholds_.target) / (1 - thresholds_.target), 0.0, 1.0);
  for (const double threshold :
       {thresholds_.target, thresholds_.warning, thresholds_.critical, thresholds_.emergency}) {
    if (reading.share < threshold) break;
    reading.status = static_cast<MemoryStatus>(static_cast<int>(reading.status) + 1);
  }
  return reading;
}

}  // namespace hybrid_trainer
