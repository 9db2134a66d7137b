#pragma once

#include "hybrid_trainer/kernels/state_space_scan.h"

namespace hybrid_trainer {

/// FLOPs of a token of a scan in chunks of 64: the two products within a chunk, of which half is used,
/// and the two with the state.
inline double scan_flops_of(const kernels::StateSpaceSpec& scan) {
  constexpr double kChunk = 64;
  const auto values = static_cast<double>(scan.values()),
             state = static_cast<double>(scan.state_size);
  return values * (kChunk + 4 * state) + static_cast<double>(scan.groups) * kChunk * state;
}

}  // namespace hybrid_trainer
