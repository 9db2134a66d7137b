#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "hybrid_trainer/core/memory_source.h"

namespace hybrid_trainer {

/// Device memory for the tensors of a test. In the emulation, and on a device where the variable
/// HT_TEST_MEMORY is "apart", each tensor is a block of its own, so that going past one is seen.
std::unique_ptr<MemorySource> test_memory();

/// Calls `run` several times, where the device is emulated with its threads and blocks in several
/// orders. All must give the same bits.
void in_several_orders(const std::function<void()>& run);

/// Sizes for what only shows at those of a real step: large kernels, several waves of blocks, split
/// sums. GPT-2 124M's at B = 64, T = 1024 on a device; tiny ones in the emulation, where the tests'
/// own code is tried.
struct StepSizes {
  std::int64_t batch, length;
  int heads;
  std::int64_t head_size, vocabulary, padded_vocabulary;
  std::int64_t head_rows;  // of one chunk of logits
  std::int64_t rows() const { return batch * length; }
  std::int64_t channels() const { return heads * head_size; }
};
StepSizes step_sizes();

/// How far losses may be from the processor's, relative: a device adds in orders of its own.
double loss_tolerance();

/// How far a product's own GELU may be from the formula in f32: PyTorch allows cuBLASLt's 1e-4.
double gelu_tolerance();

/// Recordings replayed so far; -1 where nobody counts.
int recordings_replayed();

}  // namespace hybrid_trainer
