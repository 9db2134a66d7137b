#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// How a tape stores activations.
struct TapeStorage {
  const Stream& home;      // provides the pool; must outlive the tape
  std::int64_t bits = 32;  // maximum number of bits per value of a lossy activation: 32, 16 or 8
  /// True if `home` is a file. On a CPU, transfers then overlap with computation.
  bool slow = false;
};

/// Makes a tape that stores activations according to `storage`. With 16 bits, values are rounded to
/// bf16. With 8 bits, they use the signed map of kernels/quantized/quantization.h, with an error of
/// at most 0.71 % of the largest magnitude of 256 neighbors. Transfers are copies in stream order.
/// On CUDA, transfers to and from a file block.
std::unique_ptr<PlainTape> make_tape(const Pass& pass, const TapeStorage& storage,
                                     const Stream& device);

}  // namespace hybrid_trainer
