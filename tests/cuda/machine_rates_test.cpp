#include "kernels/backend/machine.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

std::int32_t all_bits(const Tensor& x, const Stream& stream) {
  const Tensor bits = Tensor::empty({1}, DType::kI32, MemoryKind::kWorkspace, stream);
  find_all_bits(bits, x, stream);
  return *wait_for_host(bits, stream).data<std::int32_t>();
}

TEST(CudaMachineRates, ReadsEveryElement) {
  const Stream host = cpu_stream();
  for (std::int64_t n : {1, 3, 4, 1023, 33003}) {
    for (std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
      const Tensor x = Tensor::zeros({n}, DType::kF32, MemoryKind::kActivations, host);
      x.data<float>()[at] = -2.0f;
      in_several_orders([&] {
        const Stream stream = cuda_stream();
        const auto found = static_cast<std::uint32_t>(all_bits(copy_to(x, stream), stream));
        EXPECT_EQ(found, 0xC0000000u) << at << " of " << n;
      });
    }
  }
}

TEST(CudaMachineRates, CombinesBitsOfAllElements) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  const Tensor x = Tensor::zeros({20000}, DType::kF32, MemoryKind::kActivations, host);
  for (int bit = 0; bit < 32; ++bit) {
    reinterpret_cast<std::uint32_t*>(x.raw())[617 * bit] = 1u << bit;
  }
  EXPECT_EQ(all_bits(copy_to(x, stream), stream), -1);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
