#include "kernels/backend/backend.h"
#include "kernels/backend/vector_math.h"
#include "kernels/quantized/quantization.h"
#include "kernels/quantized/quantized_block_cpu.h"

namespace hybrid_trainer::kernels::cpu {

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream&) {
  std::uint8_t* const to = codes.data<std::uint8_t>();
  float* const scale = scales.data<float>();
  const float* const from = x.data<float>();
  const InstructionSet set = instruction_set();
  visit_map(map, [&]<QuantizationMap kMap>(std::integral_constant<QuantizationMap, kMap>) {
    for_quantized_blocks(x.elements(), [=](std::int64_t block, std::int64_t at, int n) {
      scale[block] = encode_block<kMap>(to + at, from + at, n, set);
    });
  });
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream&) {
  float* const to = x.data<float>();
  const std::uint8_t* const from = codes.data<std::uint8_t>();
  const float* const scale = scales.data<float>();
  const InstructionSet set = instruction_set();
  visit_map(map, [&]<QuantizationMap kMap>(std::integral_constant<QuantizationMap, kMap>) {
    for_quantized_blocks(x.elements(), [=](std::int64_t block, std::int64_t at, int n) {
      decode_block<kMap>(to + at, from + at, n, scale[block], set);
    });
  });
}

void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream&) {
  const std::int64_t columns = values.size(1);
  const std::int8_t* const codes = from.codes.data<std::int8_t>();
  const float* const magnitudes = from.magnitudes.data<float>();
  visit_real(values.dtype(), [&]<class T>(T) {
    auto* const to = values.data<T>();
    for_each_row(values.size(0), columns, [=](std::int64_t row) {
      for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
        store(to + i, static_cast<float>(codes[i]) * magnitudes[row] * (1.0f / 127));
    });
  });
}

void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream&) {
  const std::uint8_t *const codes = from.codes.data<std::uint8_t>(), *const exponents =
                                                                         from.exponents
                                                                             .data<std::uint8_t>();
  visit_real(values.dtype(), [&]<class T>(T) {
    auto* const to = values.data<T>();
    for_each_row(values.elements() / kMicroScalingBlock, kMicroScalingBlock,
                 [=](std::int64_t block) {
                   const float factor = micro_scaling_factor(exponents[block]);
                   float value[16];
                   for (std::size_t code = 0; code < 16; ++code)
                     value[code] = kMicroScalingValues[code] * factor;
                   const std::int64_t first = block * kMicroScalingBlock;
                   for (std::int64_t i = first; i < first + kMicroScalingBlock; i += 2) {
                     store(to + i, value[codes[i / 2] & 15]);
                     store(to + i + 1, value[codes[i / 2] >> 4]);
                   }
                 });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
