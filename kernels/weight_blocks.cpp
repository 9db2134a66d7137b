#include "hybrid_trainer/kernels/weight_blocks.h"

#include "hybrid_trainer/kernels/block_linear.h"
#include "kernels/backend.h"
#include "kernels/dispatch.h"
#include "kernels/weight_blocks_check.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::dequantize_blocks) dequantize_blocks;
decltype(kernels::gather_block_rows) gather_block_rows;
decltype(kernels::block_linear) block_linear;
}  // namespace cpu
namespace cuda {
decltype(kernels::dequantize_blocks) dequantize_blocks;
}  // namespace cuda

BlockTensors BlockTensors::empty(std::int64_t rows, std::int64_t columns, BlockFormat format,
                                 const Stream& stream) {
  require(columns % block_size(format).numbers == 0, "a row of blocks: want whole ones");
  return {Tensor::empty({rows * bytes_of_row(format, columns)}, DType::kU8, MemoryKind::kParameters,
                        stream),
          format};
}

void dequantize_blocks(const Tensor& values, const BlockTensors& from, const Stream& stream) {
  const KernelCall call{"dequantize_blocks", stream};
  check_real(call, {"values", values}, 2);
  check_blocks(call, from, values.size(0), values.size(1));
  dispatch<cpu::dequantize_blocks, cuda::dequantize_blocks>(call, Work::kElementwise, values, from);
}

void gather_block_rows(const Tensor& y, const Tensor& indices, const BlockTensors& from,
                       const Stream& stream) {
  const KernelCall call{"gather_block_rows", stream};
  check_real(call, {"y", y}, 2);
  check_shape(call, {"indices", indices}, {y.size(0)}, DType::kI32);
  const std::int64_t row = bytes_of_row(from.format, y.size(1));
  check_blocks(call, from, row == 0 ? 0 : from.bytes.elements() / row, y.size(1));
  check_processor(call);
  count_progress();
  const KernelTimer timer(stream, Work::kElementwise);
  if (!simulated(stream)) cpu::gather_block_rows(y, indices, from, stream);
}

void block_linear(const Tensor& y, const Tensor& x, std::span<const BlockRows> w,
                  const Tensor& bias, const Tensor& residual, const Stream& stream) {
  const KernelCall call{"block_linear", stream};
  check_real(call, {"x", x}, 2);
  std::int64_t outputs = 0;
  for (const BlockRows& part : w) {
    check_blocks(call, part.tensors, part.count, x.size(1));
    outputs += part.count;
  }
  check_shape(call, {"y", y}, {x.size(0), outputs}, x.dtype());
  check_optional_shape(call, {"bias", bias}, {outputs});
  if (bias) check_dtype(call, {"bias", bias}, DType::kF32);
  check_optional_shape(call, {"residual", residual}, y.shape());
  if (residual) check_dtype(call, {"residual", residual}, x.dtype());
  check_processor(call);
  count_progress();
  const KernelTimer timer(stream, Work::kProduct);
  cpu::block_linear(y, x, w, bias, residual, stream);
}

}  // namespace hybrid_trainer::kernels
