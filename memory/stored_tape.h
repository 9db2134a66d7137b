#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// Storage of the activations of a tape.
struct TapeStorage {
  const Stream& home;      // in whose pool; must outlive the tape
  std::int64_t bits = 32;  // of a number that may be lossy, where it has more: 32, 16 or 8
  /// A file: beside a processor, one activation goes there or comes back while others are computed.
  bool slow = false;
};

/// A tape that keeps activations as `storage` says. In 16 bits they are rounded to bf16, in 8 to the
/// signed map of kernels/quantized/quantization.h: to 0.71 % of the largest magnitude among 256 neighbours.
/// Elsewhere than on the device they go by copies in stream order; to a file these block on CUDA.
std::unique_ptr<PlainTape> make_tape(const Pass& pass, const TapeStorage& storage,
                                     const Stream& device);

}  // namespace hybrid_trainer
