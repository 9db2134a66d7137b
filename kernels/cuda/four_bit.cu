#include "hybrid_trainer/kernels/four_bit.h"

#include <bit>

#include "kernels/cuda/for_packs.cuh"
#include "kernels/cuda/four_bit_blocks.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

__device__ const std::array<float, 15> kMiddles = kFourBitMiddles;

constexpr int kCodes = 8;  // of a thread, which reads them at once

/// Element i is a value.
template <class T>
struct DequantizeFourBit {
  T* values;
  FourBitBlocks from;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float size = from.magnitude(i / kFourBitBlock);
    const float* const of_codes = from.values();
    using Bytes = Pack<std::uint8_t, (N + 1) / 2>;
    const Bytes bytes = *reinterpret_cast<const Bytes*>(from.codes + i / 2);
    float pack[N];
    for (int k = 0; k < N; ++k)
      pack[k] = of_codes[bytes.values[k / 2] >> ((i + k) % 2 == 0 ? 4 : 0) & 15] * size;
    store_pack(values + i, pack);
  }
};

/// Element i is a block.
struct QuantizeFourBit {
  std::uint8_t* codes;
  float* scales;
  const float* x;
  std::int64_t count;
  /// 0 where it is not a normal number, NaN where it is infinite or an element is NaN.
  __device__ float largest(std::int64_t first, std::int64_t last) const {
    unsigned int largest = 0;  // its bits: those of a NaN are above those of all numbers
    for (std::int64_t i = first; i < last; ++i) {
      const unsigned int bits = std::bit_cast<unsigned int>(x[i]) & 0x7FFFFFFFu;
      largest = bits > largest ? bits : largest;
    }
    if (largest >= 0x7F800000u) return std::bit_cast<float>(0x7FC00000u);
    return largest < 0x00800000u ? 0.0f : std::bit_cast<float>(largest);
  }
  __device__ int code(std::int64_t i, float scale) const {
    if (!(scale > 0) || i >= count) return kFourBitZero;
    int place = 0;
    for (int k = 0; k < 15; ++k) place += x[i] > kMiddles.data()[k] * scale ? 1 : 0;
    return place;
  }
  template <int N>
  __device__ void at(std::int64_t block) const {
    const std::int64_t first = block * kFourBitBlock;
    const std::int64_t last = first + kFourBitBlock < count ? first + kFourBitBlock : count;
    const float scale = scales[block] = largest(first, last);
    for (std::int64_t i = first; i < last; i += 2)
      codes[i / 2] = static_cast<std::uint8_t>(code(i, scale) << 4 | code(i + 1, scale));
  }
};

}  // namespace

void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream& stream) {
  const QuantizeFourBit body{to.codes.data<std::uint8_t>(), to.scales.data<float>(),
                             values.data<float>(), values.elements()};
  for_packs<1>(stream, "quantize_four_bit", to.scales.elements(), body);
}

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  visit_real(values.dtype(), [&](auto real) {
    using T = decltype(real);
    const DequantizeFourBit<T> body{values.data<T>(), blocks_of(from)};
    for_packs<kCodes>(stream, "dequantize_four_bit", values.elements(), body, values.raw(),
                      from.codes.raw());
  });
}

}  // namespace hybrid_trainer::kernels::cuda
