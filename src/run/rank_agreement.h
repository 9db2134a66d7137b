#pragma once

#include "src/run/run_ranks.h"

namespace hybrid_trainer {

// Collectives that throw UsageError where ranks differ. It names the first difference, and the rank
// that differs from most others, or, where there are no most, from the first rank.

/// Of ranks that were not called alike, or are not the same program.
void check_same_call(const RunRanks& ranks, const HybridTrainerConfig& config, bool resume);
/// Of ranks that found another configuration or machine than the others, or other `facts` of the task.
void check_same_surroundings(const RunRanks& ranks, const HybridTrainerConfig& config,
                             std::vector<NamedText> facts);
/// Of ranks that begin after different steps, or with different weights. Blocks.
void check_same_start(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                      const Stream& stream);
/// Throws RankLost where ranks that should have the same weights do not. Blocks.
void check_same_weights(const RunRanks& ranks, std::int64_t steps_done, LossModel& model,
                        const Stream& stream);

}  // namespace hybrid_trainer
