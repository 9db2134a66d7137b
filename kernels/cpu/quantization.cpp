#include "hybrid_trainer/kernels/quantization.h"

#include "kernels/cpu/quantized_block.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

template <QuantizationMap kMap>
void quantize_by(const Tensor& codes, const Tensor& scales, const Tensor& x) {
  std::uint8_t* const to = codes.data<std::uint8_t>();
  float* const scale = scales.data<float>();
  const float* const from = x.data<float>();
  const InstructionSet set = instruction_set();
  for_quantized_blocks(x.elements(), [=](std::int64_t block, std::int64_t at, int n) {
    scale[block] = encode_block<kMap>(to + at, from + at, n, set);
  });
}

template <QuantizationMap kMap>
void dequantize_by(const Tensor& x, const Tensor& codes, const Tensor& scales) {
  float* const to = x.data<float>();
  const std::uint8_t* const from = codes.data<std::uint8_t>();
  const float* const scale = scales.data<float>();
  const InstructionSet set = instruction_set();
  for_quantized_blocks(x.elements(), [=](std::int64_t block, std::int64_t at, int n) {
    decode_block<kMap>(to + at, from + at, n, scale[block], set);
  });
}

}  // namespace

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream&) {
  if (map == QuantizationMap::kSigned)
    return quantize_by<QuantizationMap::kSigned>(codes, scales, x);
  quantize_by<QuantizationMap::kUnsigned>(codes, scales, x);
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream&) {
  if (map == QuantizationMap::kSigned)
    return dequantize_by<QuantizationMap::kSigned>(x, codes, scales);
  dequantize_by<QuantizationMap::kUnsigned>(x, codes, scales);
}

}  // namespace hybrid_trainer::kernels::cpu
