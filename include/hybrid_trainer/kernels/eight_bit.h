#pragma once

#include <cstdint>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

// A matrix quantized to 8 bits, one magnitude for each row, as LLM.int8() holds weights. Source:
// Dettmers et al. 2022, "LLM.int8()", section 2.1; without the decomposition of activations that
// have outliers: products are of what the codes stand for.

struct EightBitTensors {
  Tensor codes;       // i8 (rows, columns), -127 … 127
  Tensor magnitudes;  // f32 (rows), the largest of each row
  /// Without values.
  static EightBitTensors empty(std::int64_t rows, std::int64_t columns, const Stream& stream);
};

/// values (rows, columns), f32 or bf16 = code · magnitude of the row · 1/127, each product rounded to
/// f32. Bit-identical on every device.
void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream& stream);

}  // namespace hybrid_trainer::kernels
