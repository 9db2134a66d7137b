#pragma once

#include <array>
#include <span>

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer {

/// What the blocks of a stack go without so that `share` of what all of them would save by keeping
/// their inputs alone is saved: first the activation function's outputs, then the norms', then
/// attention's, last whole blocks; each from the first block on, as what the later ones keep is free
/// again when backward comes to those.
class Recomputation {
 public:
  Recomputation(std::span<const BlockKept> blocks, double share);
  Rebuild rebuild(std::size_t block) const;
  /// The block keeps its input alone (CheckpointedModule).
  bool whole(std::size_t block) const { return block < counts_.back(); }

 private:
  static constexpr std::size_t kLevels = kRebuilds + 1;  // the last: whole blocks
  std::array<std::size_t, kLevels> counts_{};  // by level, the first blocks that are at least there
};

}  // namespace hybrid_trainer
