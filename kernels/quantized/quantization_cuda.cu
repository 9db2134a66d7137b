#include "kernels/quantized/quantization.h"
#include "kernels/quantized/quantized_block.cuh"

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

}  // namespace

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream) {
  visit_map(map, [&](auto of) {
    const Quantize<of> body{codes.data<std::uint8_t>(), scales.data<float>(), x.data<float>()};
    for_quantized_blocks(stream, "quantize", x.elements(), body, body.codes, body.x);
  });
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream) {
  visit_map(map, [&](auto of) {
    const Dequantize<of> body{x.data<float>(), codes.data<std::uint8_t>(), scales.data<float>()};
    for_quantized_blocks(stream, "dequantize", x.elements(), body, body.x, body.codes);
  });
}

namespace {

template <class T>
struct DequantizeEightBit {
  T* values;
  const std::int8_t* codes;
  const float* magnitudes;
  std::int64_t columns;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float value[1] = {static_cast<float>(codes[i]) * magnitudes[i / columns] * (1.0f / 127)};
    store_pack(values + i, value);
  }
};

}  // namespace

void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream& stream) {
  visit_real(values.dtype(), [&]<class T>(T) {
    const DequantizeEightBit<T> body{values.data<T>(), from.codes.data<std::int8_t>(),
                                     from.magnitudes.data<float>(), values.size(1)};
    for_packs<1>(stream, "dequantize_eight_bit", values.elements(), body);
  });
}

namespace {

__device__ const std::array<float, 16> kDeviceValues = kMicroScalingValues;

constexpr int kCodes = 8;  // codes per thread, read together

template <class T>
struct DequantizeMicroScaling {
  T* values;
  const std::uint8_t *codes, *exponents;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float factor = micro_scaling_factor(exponents[i / kMicroScalingBlock]);
    using Bytes = Pack<std::uint8_t, (N + 1) / 2>;
    const Bytes bytes = *reinterpret_cast<const Bytes*>(codes + i / 2);
    float pack[N];
    for (int k = 0; k < N; ++k)
      pack[k] =
          kDeviceValues.data()[bytes.values[k / 2] >> ((i + k) % 2 == 0 ? 0 : 4) & 15] * factor;
    store_pack(values + i, pack);
  }
};

}  // namespace

void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream& stream) {
  visit_real(values.dtype(), [&]<class T>(T) {
    const DequantizeMicroScaling<T> body{values.data<T>(), from.codes.data<std::uint8_t>(),
                                         from.exponents.data<std::uint8_t>()};
    for_packs<kCodes>(stream, "dequantize_micro_scaling", values.elements(), body, body.values,
                      body.codes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
