#pragma once

#include "hybrid_trainer/kernels/quantization.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void quantize(Cpu cpu, const Tensor& codes, const Tensor& scales, const Tensor& x,
              QuantizationMap map);
void dequantize(Cpu cpu, const Tensor& x, const Tensor& codes, const Tensor& scales,
                QuantizationMap map);

}  // namespace hybrid_trainer::kernels
