#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Device memory for a test's tensors. In the emulation, and on a device if the variable
/// HT_TEST_MEMORY is "apart", each tensor is a block of its own, so that overruns are detected.
std::unique_ptr<MemorySource> test_memory();

/// Calls `run` several times, on an emulated device with its threads and blocks in several orders.
/// All must give bit-identical results.
void in_several_orders(const std::function<void()>& run);

/// Sizes for what only shows at those of a real step: large kernels, several waves of blocks, split
/// sums. GPT-2 124M's at B = 64, T = 1024 on a device; tiny ones in the emulation, to check the
/// tests' own code.
struct StepSizes {
  std::int64_t batch, length;
  int heads;
  std::int64_t head_size, vocabulary, padded_vocabulary;
  std::int64_t head_rows;  // of one chunk of logits
  std::int64_t rows() const { return batch * length; }
  std::int64_t channels() const { return heads * head_size; }
};
StepSizes step_sizes();

/// Relative tolerance of losses against the processor's: a device adds in its own order.
double loss_tolerance();

/// Tolerance of a product's fused GELU against the formula in f32: PyTorch allows cuBLASLt 1e-4.
double gelu_tolerance();

/// Recordings replayed so far; -1 if they are not counted.
int recordings_replayed();

}  // namespace hybrid_trainer
