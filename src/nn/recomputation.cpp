#include "hybrid_trainer/nn/recomputation.h"

namespace hybrid_trainer {

Recomputation::Recomputation(std::span<const BlockKept> blocks, double share) {
  double all = 0;
  for (const BlockKept& kept : blocks) all += kept.front() - kept.back();
  constexpr double kRoundingErrors = 1e-9;  // of the sums here
  double wanted = share * all - kRoundingErrors * all;
  counts_.front() = blocks.size();
  for (std::size_t level = 1; level < kLevels; ++level) {
    std::size_t& count = counts_[level];
    for (; count < blocks.size() && wanted > 0; ++count)
      wanted -= blocks[count][level - 1] - blocks[count][level];
  }
}

Rebuild Recomputation::rebuild(std::size_t block) const {
  if (whole(block)) return Rebuild::kNothing;
  auto level = static_cast<std::size_t>(Rebuild::kAttended);
  while (level > 0 && block >= counts_[level]) --level;
  return static_cast<Rebuild>(level);
}

}  // namespace hybrid_trainer
