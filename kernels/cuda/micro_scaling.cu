#include "hybrid_trainer/kernels/micro_scaling.h"

#include "kernels/cuda/for_packs.cuh"

namespace hybrid_trainer::kernels::cuda {
namespace {

__device__ const std::array<float, 16> kDeviceValues = kMicroScalingValues;

constexpr int kCodes = 8;  // of a thread, which reads them at once

/// Element i is a value.
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
  visit_real(values.dtype(), [&](auto real) {
    using T = decltype(real);
    const DequantizeMicroScaling<T> body{values.data<T>(), from.codes.data<std::uint8_t>(),
                                         from.exponents.data<std::uint8_t>()};
    for_packs<kCodes>(stream, "dequantize_micro_scaling", values.elements(), body, body.values,
                      body.codes);
  });
}

}  // namespace hybrid_trainer::kernels::cuda
