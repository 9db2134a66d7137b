#include "hybrid_trainer/kernels/semiseparable.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaSemiseparable, MatchesCpu) {
  const Stream host = cpu_stream();
  const std::int64_t batch = 5, size = 43, rank = 6;
  const auto f32 = [&](const Shape& shape, std::uint64_t seed) {
    return random_tensor(shape, DType::kF32, seed, host);
  };
  const Semiseparable plain{.diagonal = f32({size}, 1),
                            .above = f32({size - 1}, 2),
                            .below = f32({size - 1}, 3),
                            .u = f32({rank, size}, 4),
                            .v = f32({rank, size}, 5)};
  for (const FactorType type :
       {FactorType::kF32, FactorType::kBF16, FactorType::kF16, FactorType::kI8}) {
    const Semiseparable h = with_factors(plain, type, host);
    for (const DType dtype : kRealTypes) {
      const Tensors tensors{h.diagonal,
                            h.above,
                            h.below,
                            h.u,
                            h.v,
                            h.u_scales,
                            h.v_scales,
                            random_tensor({batch, size}, dtype, 6, host),
                            random_tensor({batch, size}, dtype, 7, host),
                            random_tensor({batch, size}, dtype, 8, host),
                            f32({size}, 9),
                            f32({size - 1}, 10),
                            f32({size - 1}, 11),
                            f32({rank, size}, 12),
                            f32({rank, size}, 13)};
      expect_like_cpu(tensors, 2 * tolerance_of(dtype),
                      concat(name_of(h.u.dtype()), " ", name_of(dtype)),
                      [&](const Tensors& t, const Stream& s) {
                        const Semiseparable on{t[0], t[1], t[2], t[3], t[4], t[5], t[6]};
                        semiseparable_backward(
                            {t[9], t[10], t[11], t[12], t[13], t[14], GradientMode::kAccumulate},
                            t[8], t[7], on, s);
                        semiseparable_forward(t[8], t[7], on, Transpose::kNo, s);
                        semiseparable_forward(t[9], t[7], on, Transpose::kYes, s);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
