#pragma once

#include "hybrid_trainer/kernels/weight_blocks.h"
#include "kernels/check.h"

namespace hybrid_trainer::kernels {

constexpr std::int64_t bytes_of_row(BlockFormat format, std::int64_t columns) {
  const BlockSize size = block_size(format);
  return columns / size.numbers * size.bytes;
}

/// Throws ShapeMismatch or Error if they are not `rows` rows of so many columns.
inline void check_blocks(const KernelCall& call, const BlockTensors& tensors, std::int64_t rows,
                         std::int64_t columns) {
  const std::int64_t numbers = block_size(tensors.format).numbers;
  if (columns == 0 || columns % numbers != 0) {
    throw ShapeMismatch(concat(call.kernel, ": got ", columns, " columns, want a multiple of ",
                               numbers, ", the numbers of a block"));
  }
  check_shape(call, {"bytes", tensors.bytes}, {rows * bytes_of_row(tensors.format, columns)},
              DType::kU8);
}

inline void check_processor(const KernelCall& call) {
  if (call.device.type != DeviceType::kCpu)
    throw Error(ExitCode::kInternal,
                concat(call.kernel, ": the stream is on ", name_of(call.device),
                       ", and this kernel runs on a processor alone"));
}

}  // namespace hybrid_trainer::kernels
