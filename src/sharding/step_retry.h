#pragma once

namespace hybrid_trainer {

/// What several ranks do with a step for which memory was too short on one of them, once all have
/// come to its end; of what the ranks want, the last of these.
enum class StepRetry : char {
  kNone,    // it fits
  kSame,    // the rank has more memory now
  kHalved,  // in micro-batches of half the size
};

}  // namespace hybrid_trainer
