#include "hybrid_trainer/kernels/four_bit.h"
#include "kernels/cuda/for_packs.cuh"
#include "kernels/four_bit_levels.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

__device__ const std::array<float, 16> kValues = kFourBitValues;
__device__ const std::array<float, 256> kLevels = make_four_bit_levels();

/// Element i is a byte of codes.
template <class T>
struct DequantizeFourBit {
  T* values;
  const std::uint8_t *codes, *levels;
  const float* scales;
  float offset;
  std::int64_t count;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t block = 2 * i / kFourBitBlock;
    const float size = __fadd_rn(
        __fmul_rn(kLevels.data()[levels[block]], scales[block / kFourBitLevelBlock]), offset);
    const float first[1] = {kValues.data()[codes[i] >> 4] * size},
                second[1] = {kValues.data()[codes[i] & 15] * size};
    store_pack(values + 2 * i, first);
    if (2 * i + 1 < count) store_pack(values + 2 * i + 1, second);
  }
};

}  // namespace

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  visit_real(values.dtype(), [&](auto real) {
    using T = decltype(real);
    const DequantizeFourBit<T> body{values.data<T>(),
                                    from.codes.data<std::uint8_t>(),
                                    from.levels.data<std::uint8_t>(),
                                    from.scales.data<float>(),
                                    from.offset,
                                    values.elements()};
    for_packs<1>(stream, "dequantize_four_bit", from.codes.elements(), body);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
