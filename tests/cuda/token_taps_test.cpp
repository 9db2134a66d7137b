#include "hybrid_trainer/kernels/structured.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaTokenTaps, MatchCpu) {
  const Stream host = cpu_stream();
  const std::int64_t batch = 2, time = 37, width = 12, columns = 26;
  Values places;
  for (std::int64_t i = 0; i < batch * time; ++i)
    places.push_back(static_cast<double>((i % time + 4) % 11));
  for (const bool ahead : {false, true}) {
    for (const bool packed : {false, true}) {
      for (const DType dtype : kRealTypes) {
        const Shape wide{batch, time, width}, rows{batch * time, columns};
        const Tensors tensors{
            random_tensor(wide, dtype, 1, host),
            random_tensor(wide, dtype, 2, host),
            random_tensor(wide, dtype, 3, host),
            random_tensor(rows, dtype, 4, host),
            random_tensor(rows, dtype, 5, host),
            packed ? tensor_of(places, {batch, time}, DType::kI32, host) : Tensor{},
            random_tensor({batch, 1, width}, dtype, 6, host)};
        const TokenTapsSpec spec{.heads = 4, .ahead = ahead};
        expect_like_cpu(tensors, tolerance_of(dtype), concat(ahead, packed),
                        [&](const Tensors& t, const Stream& s) {
                          TokenTapsInput input{t[1], t[2], {t[3], 1}, {t[3], 13}, t[5]};
                          token_taps_backward(t[0], {t[4], 1}, {t[4], 13}, t[1], input, spec, s);
                          input.before = t[6];
                          token_taps_forward(t[2], input, spec, s);
                        });
      }
    }
  }
  const Tensors tensors{random_tensor({3, width}, DType::kF32, 1, host),
                        random_tensor({3, width}, DType::kF32, 2, host),
                        random_tensor({5, 1, width}, DType::kF32, 3, host),
                        random_tensor({3, columns}, DType::kF32, 4, host),
                        tensor_of({4, 0, 7}, {3}, DType::kI32, host),
                        tensor_of({2, 0, 4}, {3}, DType::kI32, host)};
  expect_like_cpu(tensors, 1e-6, "step", [&](const Tensors& t, const Stream& s) {
    token_taps_step(t[0], t[1], t[2], {t[3], 1}, {t[3], 13}, t[4], t[5], {.heads = 4}, s);
  });
}

}  // namespace
}  // namespace hybrid_trainer::kernels
