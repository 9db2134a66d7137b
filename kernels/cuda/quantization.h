#pragma once

#include "hybrid_trainer/kernels/quantization.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void quantize(Cuda cuda, const Tensor& codes, const Tensor& scales, const Tensor& x,
              QuantizationMap map);
void dequantize(Cuda cuda, const Tensor& x, const Tensor& codes, const Tensor& scales,
                QuantizationMap map);

}  // namespace hybrid_trainer::kernels
