#include "hybrid_trainer/kernels/eight_bit.h"

#include "kernels/cuda/for_packs.cuh"

namespace hybrid_trainer::kernels::cuda {
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
  visit_real(values.dtype(), [&](auto real) {
    using T = decltype(real);
    const DequantizeEightBit<T> body{values.data<T>(), from.codes.data<std::int8_t>(),
                                     from.magnitudes.data<float>(), values.size(1)};
    for_packs<1>(stream, "dequantize_eight_bit", values.elements(), body);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
