#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// How a tape stores activations.
struct TapeStorage {
  const Stream& home;      // stream whose pool stores activations; must outlive the tape
  std::int64_t bits = 32;  // maximum number of bits per value of a lossy activation: 32, 16 or 8
  /// True if `home` is a file. On a CPU, transfers then overlap with computation.
  bool slow = false;
};

/// Makes a tape that stores activations according to `storage`: 16 bits as bf16, 8 bits in blocks
/// of 256 with the signed map of kernels/quantized/quantization.h. Transfers are copies in stream
/// order; on CUDA, transfers to and from a file block.
std::unique_ptr<PlainTape> make_tape(const Pass& pass, const TapeStorage& storage,
                                     const Stream& device);

}  // namespace hybrid_trainer
