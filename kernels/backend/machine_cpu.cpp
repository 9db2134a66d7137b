#include <bit>

#include "kernels/backend/machine.h"
#include "kernels/backend/parallel.h"

namespace hybrid_trainer::kernels::cpu {

void prepare_products(const ProductRun&, const Stream&) {}

void find_all_bits(const Tensor& result, const Tensor& x, const Stream&) {
  const float* const in = x.data<float>();
  std::atomic<std::uint32_t> all = 0;
  parallel_for(x.elements(), [=, &all](std::int64_t begin, std::int64_t end) {
    std::uint32_t bits = 0;
#pragma omp simd reduction(| : bits)
    for (std::int64_t i = begin; i < end; ++i) bits |= std::bit_cast<std::uint32_t>(in[i]);
    all |= bits;
  });
  *result.data<std::int32_t>() = static_cast<std::int32_t>(all.load());
}

}  // namespace hybrid_trainer::kernels::cpu
