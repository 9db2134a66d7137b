#include "kernels/products/product_rounding.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Expects the CPU's bits of a kernel on x, its copy and two numbers, for one and several blocks,
/// complete and from the second element on.
void expect_bits_of_cpu(const std::string& what,
                        const std::function<void(const Tensors&, const Stream&)>& kernel) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t n : {1, 7, 2056, 20001}) {
      const Tensors tensors{
          random_tensor({n}, dtype, 1, host, 100), random_tensor({n}, dtype, 2, host),
          tensor_of({0}, {1}, DType::kF32, host), tensor_of({60}, {1}, DType::kF32, host)};
      const std::string of = concat(what, " ", n, " ", name_of(dtype));
      expect_like_cpu(tensors, 0, of, kernel);
      if (n == 1) continue;
      expect_like_cpu(tensors, 0, of + " from element 1", [&](const Tensors& t, const Stream& s) {
        kernel({t[0].rows(1, n), t[1].rows(1, n), t[2], t[3]}, s);
      });
    }
  }
}

TEST(CudaProductRounding, LargestMagnitudeMatchesCpu) {
  expect_bits_of_cpu(
      "largest", [](const Tensors& t, const Stream& s) { largest_magnitude(t[2], t[3], t[0], s); });
}

TEST(CudaProductRounding, Float8RoundingMatchesCpu) {
  for (const Float8 format : {Float8::kE4M3, Float8::kE5M2}) {
    expect_bits_of_cpu("by its own largest", [&](const Tensors& t, const Stream& s) {
      largest_magnitude(t[3], Tensor{}, t[0], s);
      round_to_float8(t[1], t[0], format, t[2], t[3], s);
    });
    expect_bits_of_cpu("beyond what is expected", [&](const Tensors& t, const Stream& s) {
      round_to_float8(t[1], t[0], format, t[3], t[2], s);
    });
  }
}

TEST(CudaProductRounding, HalfRoundingMatchesCpu) {
  expect_bits_of_cpu("half", [](const Tensors& t, const Stream& s) {
    scale(t[0], t[0], 100, s);
    round_to_half(t[1], t[0], s);
  });
}

}  // namespace
}  // namespace hybrid_trainer::kernels
