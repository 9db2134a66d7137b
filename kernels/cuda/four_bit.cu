#include "hybrid_trainer/kernels/four_bit.h"
#include "kernels/cuda/for_packs.cuh"
#include "kernels/four_bit_levels.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

__device__ const std::array<float, 16> kNormals = kFourBitValues;
__device__ const std::array<float, 16> kFloats = kFourBitFloats;
__device__ const std::array<float, 256> kLevels = make_four_bit_levels();

/// Element i is a byte of codes.
template <class T>
struct DequantizeFourBit {
  T* values;
  const std::uint8_t *codes, *levels;
  const float* scales;
  float offset;
  FourBitType type;
  std::int64_t count;
  __device__ float magnitude(std::int64_t block) const {
    if (levels == nullptr) return scales[block];
    return __fadd_rn(__fmul_rn(kLevels.data()[levels[block]], scales[block / kFourBitLevelBlock]),
                     offset);
  }
  template <int N>
  __device__ void at(std::int64_t i) const {
    const float size = magnitude(2 * i / kFourBitBlock);
    const float* const of_codes = type == FourBitType::kNormal ? kNormals.data() : kFloats.data();
    const float first[1] = {of_codes[codes[i] >> 4] * size},
                second[1] = {of_codes[codes[i] & 15] * size};
    store_pack(values + 2 * i, first);
    if (2 * i + 1 < count) store_pack(values + 2 * i + 1, second);
  }
};

}  // namespace

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  visit_real(values.dtype(), [&](auto real) {
    using T = decltype(real);
    const DequantizeFourBit<T> body{
        values.data<T>(),
        from.codes.data<std::uint8_t>(),
        from.levels.defined() ? from.levels.data<std::uint8_t>() : nullptr,
        from.scales.data<float>(),
        from.offset,
        from.type,
        values.elements()};
    for_packs<1>(stream, "dequantize_four_bit", from.codes.elements(), body);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
