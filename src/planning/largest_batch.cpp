#include "src/planning/largest_batch.h"

#include <algorithm>

namespace hybrid_trainer {

std::int64_t largest_batch(HybridTrainerConfig config, const MemoryNeed& need,
                           const MemoryBudgets& budgets, const Simulate& simulate) {
  const auto fits = [&](std::int64_t size) {
    config.data.batch_size = size;
    return missing_bytes(simulate(config, SimulatedPhases::kUpdates), budgets) == 0;
  };
  const std::int64_t given = config.data.batch_size;
  config.data.batch_size = 2 * given;
  const auto first = static_cast<double>(need.device_bytes),
             twice =
                 static_cast<double>(simulate(config, SimulatedPhases::kFirstUpdate).device_bytes),
             slope = (twice - first) / static_cast<double>(given);
  const double room = static_cast<double>(*budgets.device) - first;
  std::int64_t largest = given;
  constexpr double kMost = 1 << 20;
  if (slope > 0) largest += static_cast<std::int64_t>(std::clamp(room / slope, 0.0, kMost));
  // Larger ones than this take long to simulate: there the line is trusted but for a hundredth.
  constexpr std::int64_t kMostTokens = 1 << 20;
  if (largest * config.data.sequence_length > kMostTokens)
    return std::max(given, largest - largest / 100);
  while (largest > given && !fits(largest)) largest -= std::max<std::int64_t>(1, largest / 50);
  return largest;
}

}  // namespace hybrid_trainer
