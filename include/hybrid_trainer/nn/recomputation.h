#pragma once

#include <array>

#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/branch.h"

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
  Recomputation(const BlockSpec& spec, std::size_t blocks, double share, Rebuild least);
  Rebuild rebuild(std::size_t block) const;
  /// The block keeps its input alone (CheckpointedModule), and what is rebuilt in any case is
  /// while it runs again.
  bool whole(std::size_t block) const { return block < counts_.back(); }
  std::size_t whole_blocks() const { return counts_.back(); }
  /// Blocks whose attention runs again, be it alone or with the rest.
  std::size_t attended_again() const { return counts_[kLevels - 2]; }

 private:
  static constexpr std::size_t kLevels = 5;  // of Rebuild, and whole blocks
  Rebuild least_;
  std::array<std::size_t, kLevels> counts_{};  // by level, the first blocks that are at least there
};

}  // namespace hybrid_trainer
