#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// Storage of a tape's activations.
struct TapeStorage {
  const Stream& home;      // provides the pool; must outlive the tape
  std::int64_t bits = 32;  // at most, per lossy value: 32, 16 or 8
  /// A file. On a CPU, transfers of one activation overlap with the computation of others.
  bool slow = false;
};

/// Makes a tape that stores activations according to `storage`. 16 bits round to bf16. 8 bits use
/// the signed map of kernels/quantized/quantization.h, with an error of at most 0.71 % of the
/// largest magnitude of 256 neighbors. Transfers are copies in stream order; those to a file block
/// on CUDA.
std::unique_ptr<PlainTape> make_tape(const Pass& pass, const TapeStorage& storage,
                                     const Stream& device);

}  // namespace hybrid_trainer
