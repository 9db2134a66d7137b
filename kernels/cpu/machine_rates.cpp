#include "kernels/cpu/machine_rates.h"

#include <atomic>
#include <bit>

#include "kernels/cpu/parallel.h"

namespace hybrid_trainer::kernels {

void find_all_bits(Cpu, const Tensor& result, const Tensor& x) {
  const float* const in = x.data<float>();
  std::atomic<std::uint32_t> all = 0;
  cpu::parallel_for(x.elements(), [=, &all](std::int64_t begin, std::int64_t end) {
    std::uint32_t bits = 0;
#pragma omp simd reduction(| : bits)
    for (std::int64_t i = begin; i < end; ++i) {
      bits |= std::bit_cast<std::uint32_t>(in[i]);
    }
    all |= bits;
  });
  *result.data<std::int32_t>() = static_cast<std::int32_t>(all.load());
}

}  // namespace hybrid_trainer::kernels
