#include "hybrid_trainer/kernels/micro_scaling.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::dequantize_micro_scaling) dequantize_micro_scaling;
}  // namespace cpu
namespace cuda {
decltype(kernels::dequantize_micro_scaling) dequantize_micro_scaling;
}  // namespace cuda

MicroScalingTensors MicroScalingTensors::empty(std::int64_t rows, std::int64_t columns,
                                               const Stream& stream) {
  return {Tensor::empty({rows, columns / 2}, DType::kU8, MemoryKind::kParameters, stream),
          Tensor::empty({rows, columns / kMicroScalingBlock}, DType::kU8, MemoryKind::kParameters,
                        stream)};
}

void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream& stream) {
  const KernelCall call{"dequantize_micro_scaling", stream};
  check_real(call, {"values", values}, 2);
  const std::int64_t rows = values.size(0), columns = values.size(1);
  if (columns % kMicroScalingBlock != 0)
    throw ShapeMismatch(concat(call.kernel, ": got ", columns, " columns, want a multiple of ",
                               kMicroScalingBlock));
  check_shape(call, {"codes", from.codes}, {rows, columns / 2}, DType::kU8);
  check_shape(call, {"exponents", from.exponents}, {rows, columns / kMicroScalingBlock},
              DType::kU8);
  dispatch<cpu::dequantize_micro_scaling, cuda::dequantize_micro_scaling>(call, Work::kElementwise,
                                                                          values, from);
}

}  // namespace hybrid_trainer::kernels
