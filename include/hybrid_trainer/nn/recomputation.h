#pragma once

#include <array>
#include <span>

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer {

/// What is not kept on a device in any case: where its memory is scarce, a third of a block's
/// activations goes for 2 % of a step.
inline Rebuild least_rebuild(Device device) {
  return device.type == DeviceType::kCpu ? Rebuild::kNothing : Rebuild::kActivated;
}

/// What the blocks of a stack go without so that `share` of what all of them would save by keeping
/// their inputs alone is saved: first the activation function's outputs, then the norms', then
/// attention's, last whole blocks; each from the first block on, as what the later ones keep is free
/// again when backward comes to those.
class Recomputation {
 public:
  /// `least`: what no block keeps in any case; saves nothing towards the share.
  Recomputation(std::span<const BlockKept> blocks, double share, Rebuild least);
  Rebuild rebuild(std::size_t block) const;
  /// The block keeps its input alone (CheckpointedModule), and what is rebuilt in any case is
  /// while it runs again.
  bool whole(std::size_t block) const { return block < counts_.back(); }

 private:
  static constexpr std::size_t kLevels = kRebuilds + 1;  // the last: whole blocks
  Rebuild least_;
  std::array<std::size_t, kLevels> counts_{};  // by level, the first blocks that are at least there
};

}  // namespace hybrid_trainer
