#include "hybrid_trainer/nn/recomputation.h"

#include <algorithm>
#include <cmath>

namespace hybrid_trainer {
namespace {

/// Numbers that a block keeps for a token where it goes without what each level names; statistics
/// of rows are left out.
std::array<double, 5> kept_numbers(const BlockSpec& spec) {
  const auto width = static_cast<double>(spec.width),
             heads = static_cast<double>(spec.heads * spec.head_size),
             all_heads = static_cast<double>(spec.all_heads() * spec.head_size),
             inner = static_cast<double>(spec.inner_width);
  const double all =
      (spec.sandwich ? 6 : 4) * width + all_heads + heads + (spec.gated ? 3 : 2) * inner;
  return {all, all - inner, all - inner - 2 * width, all - inner - 2 * width - heads, width};
}

}  // namespace

Recomputation::Recomputation(const BlockSpec& spec, std::size_t blocks, double share, Rebuild least)
    : least_(least) {
  const std::array<double, kLevels> kept = kept_numbers(spec);
  const auto first = static_cast<std::size_t>(least);
  const auto all_blocks = static_cast<double>(blocks);
  double wanted = share * all_blocks * (kept[first] - kept.back());
  for (std::size_t level = 0; level <= first; ++level) counts_[level] = blocks;
  for (std::size_t level = first + 1; level < kLevels; ++level) {
    const double saved = kept[level - 1] - kept[level];
    constexpr double kRoundingErrors = 1e-9;  // of the sums here
    const double count =
        std::clamp(std::ceil(wanted / saved - kRoundingErrors * all_blocks), 0.0, all_blocks);
    counts_[level] = static_cast<std::size_t>(count);
    wanted -= count * saved;
  }
}

Rebuild Recomputation::rebuild(std::size_t block) const {
  if (whole(block)) return least_;
  auto level = static_cast<std::size_t>(Rebuild::kAttended);
  while (level > 0 && block >= counts_[level]) --level;
  return static_cast<Rebuild>(level);
}

}  // namespace hybrid_trainer
