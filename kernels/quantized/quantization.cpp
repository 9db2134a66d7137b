#include "kernels/generated/quantization.h"

#include "kernels/backend/dispatch.h"
#include "kernels/quantized/four_bit_levels.h"

namespace hybrid_trainer::kernels {

namespace {

void check_quantized(const KernelCall& call, const Tensor& codes, const Tensor& scales,
                     const Tensor& x) {
  check_dtype(call, {"x", x}, DType::kF32);
  check_shape(call, {"codes", codes}, x.shape(), DType::kU8);
  check_dtype(call, {"scales", scales}, DType::kF32);
  check_shape(call, {"scales", scales}, {quantization_blocks(x.elements())});
}

constexpr std::int64_t four_bit_parts(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

void check_four_bit(const KernelCall& call, const FourBitTensors& tensors, std::int64_t count) {
  const std::int64_t blocks = four_bit_parts(count, kFourBitBlock);
  check_shape(call, {"codes", tensors.codes}, {four_bit_parts(count, 2)}, DType::kU8);
  if (tensors.levels.defined()) check_shape(call, {"levels", tensors.levels}, {blocks}, DType::kU8);
  check_shape(call, {"scales", tensors.scales},
              {tensors.levels.defined() ? four_bit_parts(blocks, kFourBitLevelBlock) : blocks},
              DType::kF32);
}

}  // namespace

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream) {
  const KernelCall call{"quantize", stream, Work::kElementwise};
  check_quantized(call, codes, scales, x);
  dispatch<cpu::quantize, cuda::quantize>(call, codes, scales, x, map);
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream) {
  const KernelCall call{"dequantize", stream, Work::kElementwise};
  check_quantized(call, codes, scales, x);
  dispatch<cpu::dequantize, cuda::dequantize>(call, x, codes, scales, map);
}

EightBitTensors EightBitTensors::empty(std::int64_t rows, std::int64_t columns,
                                       const Stream& stream) {
  return {Tensor::empty({rows, columns}, DType::kI8, MemoryKind::kParameters, stream),
          Tensor::empty({rows}, DType::kF32, MemoryKind::kParameters, stream)};
}

void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream& stream) {
  const KernelCall call{"dequantize_eight_bit", stream, Work::kElementwise};
  check_real(call, {"values", values});
  check_rank(call, {"values", values}, 2);
  check_shape(call, {"codes", from.codes}, values.shape(), DType::kI8);
  check_shape(call, {"magnitudes", from.magnitudes}, {values.size(0)}, DType::kF32);
  dispatch<cpu::dequantize_eight_bit, cuda::dequantize_eight_bit>(call, values, from);
}

MicroScalingTensors MicroScalingTensors::empty(std::int64_t rows, std::int64_t columns,
                                               const Stream& stream) {
  return {Tensor::empty({rows, columns / 2}, DType::kU8, MemoryKind::kParameters, stream),
          Tensor::empty({rows, columns / kMicroScalingBlock}, DType::kU8, MemoryKind::kParameters,
                        stream)};
}

void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream& stream) {
  const KernelCall call{"dequantize_micro_scaling", stream, Work::kElementwise};
  check_real(call, {"values", values}, 2);
  const std::int64_t rows = values.size(0), columns = values.size(1);
  if (columns % kMicroScalingBlock != 0)
    throw_mismatch(call, "got ", columns, " columns, want a multiple of ", kMicroScalingBlock);
  check_shape(call, {"codes", from.codes}, {rows, columns / 2}, DType::kU8);
  check_shape(call, {"exponents", from.exponents}, {rows, columns / kMicroScalingBlock},
              DType::kU8);
  dispatch<cpu::dequantize_micro_scaling, cuda::dequantize_micro_scaling>(call, values, from);
}

constexpr std::array<float, 256> kFourBitLevels = make_four_bit_levels();

FourBitTensors FourBitTensors::empty(std::int64_t count, FourBitType type, const Stream& stream) {
  const auto make = [&](std::int64_t elements, DType dtype) {
    return Tensor::empty({elements}, dtype, MemoryKind::kParameters, stream);
  };
  const std::int64_t blocks = four_bit_parts(count, kFourBitBlock);
  return {make(four_bit_parts(count, 2), DType::kU8), make(blocks, DType::kU8),
          make(four_bit_parts(blocks, kFourBitLevelBlock), DType::kF32), 0, type};
}

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  const KernelCall call{"dequantize_four_bit", stream, Work::kElementwise};
  check_real(call, {"values", values});
  check_four_bit(call, from, values.elements());
  dispatch<cpu::dequantize_four_bit, cuda::dequantize_four_bit>(call, values, from);
}

void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream& stream) {
  const KernelCall call{"quantize_four_bit", stream, Work::kElementwise};
  require(to.type == FourBitType::kNormal && !to.levels.defined(),
          "quantize_four_bit: want NormalFloat 4 with f32 scales");
  check_dtype(call, {"values", values}, DType::kF32);
  check_four_bit(call, to, values.elements());
  dispatch<cpu::quantize_four_bit, cuda::quantize_four_bit>(call, to, values);
}

void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream) {
  const KernelCall call{"four_bit_linear", stream, Work::kProduct};
  check_real(call, {"x", x}, 2);
  check_rank(call, {"y", y}, 2);
  const std::int64_t inputs = x.size(1), outputs = y.size(1);
  if (inputs == 0 || inputs % kFourBitBlock != 0 || w.first < 0 || w.first + w.count > outputs)
    throw ShapeMismatch(concat("four_bit_linear: x is ", x.shape().text(), ", y is ",
                               y.shape().text(), ", w has rows ", w.first, " to ",
                               w.first + w.count, "; want a multiple of ", kFourBitBlock,
                               " columns of x, and rows within the columns of y"));
  check_shape(call, {"y", y}, {x.size(0), outputs}, x.dtype());
  check_optional_shape(call, {"bias", bias}, {outputs}, DType::kF32);
  check_optional_shape(call, {"residual", residual}, y.shape(), x.dtype());
  check_four_bit(call, w.tensors, w.count * inputs);
  dispatch_with_workspace<cpu::four_bit_linear, cuda::four_bit_linear>(call, y, x, w, bias,
                                                                       residual);
}

}  // namespace hybrid_trainer::kernels
