#include "hybrid_trainer/kernels/quantization.h"

#include "kernels/cuda/quantized_block.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

template <QuantizationMap kMap>
__device__ const SharedTable<kMap>& table_of(const SharedTables& tables) {
  if constexpr (kMap == QuantizationMap::kSigned) {
    return tables.of_signed;
  } else {
    return tables.of_unsigned;
  }
}

template <QuantizationMap kMap>
struct Quantize {
  std::uint8_t* codes;
  float* scales;
  const float* x;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float values[kPerLane];
    load_lane<N>(values, x + begin, count);
    encode_lane<N>(codes + begin, scales + block, values, count, table_of<kMap>(tables));
  }
};

template <QuantizationMap kMap>
struct Dequantize {
  float* x;
  const std::uint8_t* codes;
  const float* scales;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float values[kPerLane];
    decode_lane<N>(values, codes + begin, scales[block], count, table_of<kMap>(tables));
    store_lane<N>(x + begin, values, count);
  }
};

template <QuantizationMap kMap>
void quantize_by(const Tensor& codes, const Tensor& scales, const Tensor& x, const Stream& stream) {
  const Quantize<kMap> body{codes.data<std::uint8_t>(), scales.data<float>(), x.data<float>()};
  for_quantized_blocks(stream, "quantize", x.elements(), body, body.codes, body.x);
}

template <QuantizationMap kMap>
void dequantize_by(const Tensor& x, const Tensor& codes, const Tensor& scales,
                   const Stream& stream) {
  const Dequantize<kMap> body{x.data<float>(), codes.data<std::uint8_t>(), scales.data<float>()};
  for_quantized_blocks(stream, "dequantize", x.elements(), body, body.x, body.codes);
}

}  // namespace

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream) {
  if (map == QuantizationMap::kSigned) {
    quantize_by<QuantizationMap::kSigned>(codes, scales, x, stream);
  } else {
    quantize_by<QuantizationMap::kUnsigned>(codes, scales, x, stream);
  }
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream) {
  if (map == QuantizationMap::kSigned) {
    dequantize_by<QuantizationMap::kSigned>(x, codes, scales, stream);
  } else {
    dequantize_by<QuantizationMap::kUnsigned>(x, codes, scales, stream);
  }
}

}  // namespace hybrid_trainer::kernels::cuda
