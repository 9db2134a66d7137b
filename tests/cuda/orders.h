#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Device memory for a test's tensors. On an emulated device, and on a real one if HT_TEST_MEMORY
/// is "apart", allocates each tensor separately, so that overruns are detected.
std::unique_ptr<MemorySource> test_memory();

/// Calls `run` several times, emulated devices in several orders. Results must be bit-identical.
void in_several_orders(const std::function<void()>& run);

/// Sizes for effects that appear only in real steps: large kernels, several waves of blocks, split
/// sums. GPT-2 124M with B = 64, T = 1024 on a device; tiny sizes on an emulated device.
struct StepSizes {
  std::int64_t batch, length;
  int heads;
  std::int64_t head_size, vocabulary, padded_vocabulary;
  std::int64_t head_rows;  // rows of one chunk of logits
  std::int64_t rows() const { return batch * length; }
  std::int64_t channels() const { return heads * head_size; }
};
StepSizes step_sizes();

/// Relative tolerance of losses against the CPU's, since a device adds in a different order.
double loss_tolerance();

/// Tolerance of a fused GELU against the f32 formula. PyTorch allows cuBLASLt 1e-4.
double gelu_tolerance();

/// Number of recordings replayed so far, or -1 if they are not counted.
int recordings_replayed();

}  // namespace hybrid_trainer
