#include "hybrid_trainer/kernels/micro_scaling.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

void dequantize_micro_scaling(const Tensor& values, const MicroScalingTensors& from,
                              const Stream&) {
  const std::uint8_t *const codes = from.codes.data<std::uint8_t>(), *const exponents =
                                                                         from.exponents
                                                                             .data<std::uint8_t>();
  visit_real(values.dtype(), [&](auto real) {
    auto* const to = values.data<decltype(real)>();
    parallel_rows(values.elements() / kMicroScalingBlock, kMicroScalingBlock,
                  [=](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t block = begin; block < end; ++block) {
                      const float factor = micro_scaling_factor(exponents[block]);
                      float value[16];
                      for (std::size_t code = 0; code < 16; ++code)
                        value[code] = kMicroScalingValues[code] * factor;
                      const std::int64_t first = block * kMicroScalingBlock;
                      for (std::int64_t i = first; i < first + kMicroScalingBlock; i += 2) {
                        store(to + i, value[codes[i / 2] & 15]);
                        store(to + i + 1, value[codes[i / 2] >> 4]);
                      }
                    }
                  });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
