#include "hybrid_trainer/kernels/structured.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Chains shorter than, equal to and longer than a block, and a long one that must not overflow.
TEST(CudaResolvent, MatchesCpu) {
  const Stream host = cpu_stream();
  for (const auto& [batch, tokens, matrices] : {std::array<std::int64_t, 3>{2, 300, 3},
                                                {1, 1, 1},
                                                {3, 37, 2},
                                                {1, 128, 1},
                                                {1, 20'000, 1}}) {
    for (const DType dtype : kRealTypes) {
      const Shape wide{batch, tokens, 2 * matrices}, edges{tokens - 1, matrices};
      Values places;
      for (std::int64_t i = 0; i < batch * tokens; ++i)
        places.push_back(static_cast<double>(i % tokens % 41));
      const Tensors tensors{random_tensor({batch, tokens, matrices}, dtype, 1, host, 2),
                            random_squares(edges, 2, host),
                            random_squares(edges, 3, host),
                            tensor_of(places, {batch, tokens}, DType::kI32, host),
                            random_tensor(wide, dtype, 4, host),
                            random_tensor(wide, dtype, 5, host),
                            random_tensor({batch, tokens, matrices}, dtype, 6, host),
                            random_tensor(edges, DType::kF32, 7, host),
                            random_tensor(edges, DType::kF32, 8, host),
                            random_tensor({2}, DType::kF32, 9, host)};
      const ResolventSpec spec{.z = {0.2, 0.7}, .limit = 3};
      expect_like_cpu(tensors, tolerance_of(dtype), concat(tokens, " ", name_of(dtype)),
                      [&](const Tensors& t, const Stream& s) {
                        const ResolventInput input{t[0], t[1], t[2], t[3]};
                        resolvent_forward(t[4], input, spec, s);
                        resolvent_backward({t[6], t[7], t[8], t[9], GradientMode::kAccumulate},
                                           t[5], input, spec, s);
                      });
      expect_like_cpu(tensors, tolerance_of(dtype), concat("free ", tokens),
                      [&](const Tensors& t, const Stream& s) {
                        resolvent_forward(t[4], {.values = t[0]}, {}, s);
                        resolvent_backward({.values = t[6]}, t[5], {.values = t[0]}, {}, s);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
