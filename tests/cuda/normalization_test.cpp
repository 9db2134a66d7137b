#include "hybrid_trainer/kernels/normalization.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

double normalization_tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 2e-2; }

/// {y, mean, rstd, x, weight, bias}.
Tensors forward_case(std::int64_t rows, std::int64_t columns, DType dtype, const Stream& host) {
  return {random_tensor({rows, columns}, dtype, 1, host),
          random_tensor({rows}, DType::kF32, 2, host),
          random_tensor({rows}, DType::kF32, 3, host),
          random_tensor({rows, columns}, dtype, 4, host, 2),
          random_tensor({columns}, DType::kF32, 5, host),
          random_tensor({columns}, DType::kF32, 6, host)};
}

void forward(const Tensors& t, const Stream& s) {
  layer_norm_forward(t[0], t[1], t[2], t[3], t[4], t[5], 1e-5f, s);
}

TEST(CudaNormalization, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  // Every size of a row in registers, one vector load, unaligned rows and a row beyond registers.
  for (DType dtype : kRealTypes) {
    for (std::int64_t columns : {8, 1, 7, 256, 264, 768, 776, 1032, 2056, 1001}) {
      expect_like_cpu(forward_case(columns < 300 ? 5 : 3, columns, dtype, host),
                      normalization_tolerance(dtype),
                      concat("forward ", columns, " ", name_of(dtype)), forward);
    }
  }
}

TEST(CudaNormalization, MisalignedForwardWithoutMomentsMatchesCpu) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    Tensors tensors = forward_case(2, 16, dtype, host);
    const Tensor long_weight = random_tensor({17}, DType::kF32, 7, host);
    tensors[1] = tensors[2] = {};
    tensors[4] = long_weight;
    expect_like_cpu(tensors, normalization_tolerance(dtype), "misaligned weight",
                    [](const Tensors& t, const Stream& s) {
                      layer_norm_forward(t[0], t[1], t[2], t[3], t[4].rows(1, 17), t[5], 1e-5f, s);
                    });
  }
}

/// {dx, dweight, dbias, dy, x, mean, rstd, weight} with the moments of x.
Tensors backward_case(std::int64_t rows, std::int64_t columns, DType dtype, const Stream& host) {
  const Tensors t = forward_case(rows, columns, dtype, host);
  forward(t, host);
  return {random_tensor({rows, columns}, dtype, 7, host),
          random_tensor({columns}, DType::kF32, 8, host),
          random_tensor({columns}, DType::kF32, 9, host),
          random_tensor({rows, columns}, dtype, 10, host),
          t[3],
          t[1],
          t[2],
          t[4]};
}

void backward(GradientMode input_mode, GradientMode parameter_mode, const Tensors& t,
              const Stream& s) {
  layer_norm_backward(t[0], input_mode, t[1], t[2], parameter_mode, t[3], t[4], t[5], t[6], t[7],
                      s);
}

TEST(CudaNormalization, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    // The last two use all shared memory of a block without opt-in, in f32 and bf16.
    for (std::int64_t columns : {8, 1, 50, 264, 1032, 1024, 2048}) {
      for (GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
        const bool adds = mode == GradientMode::kAccumulate;
        expect_like_cpu(
            backward_case(adds ? 9 : 4, columns, dtype, host), normalization_tolerance(dtype),
            concat("backward ", columns, " ", name_of(dtype), adds ? " accumulate" : ""),
            [&](const Tensors& t, const Stream& s) { backward(mode, mode, t, s); });
      }
    }
  }
}

TEST(CudaNormalization, BackwardOverManyRowsMatchesCpu) {
  const Stream host = cpu_stream();
  expect_like_cpu(backward_case(2050, 8, DType::kF32, host), 1e-4, "2050 packed rows",
                  [](const Tensors& t, const Stream& s) {
                    backward(GradientMode::kOverwrite, GradientMode::kAccumulate, t, s);
                  });
  expect_like_cpu(backward_case(2050, 132, DType::kF32, host), 1e-4, "2050 rows of two warps",
                  [](const Tensors& t, const Stream& s) {
                    backward(GradientMode::kOverwrite, GradientMode::kOverwrite, t, s);
                  });
  expect_like_cpu(backward_case(2050, 3, DType::kF32, host), 1e-4, "2050 rows",
                  [](const Tensors& t, const Stream& s) {
                    backward(GradientMode::kAccumulate, GradientMode::kOverwrite, t, s);
                  });
}

TEST(CudaNormalization, BackwardOverWideRowsMatchesCpu) {
  const Stream host = cpu_stream();
  // The widest row with two rows at a time, the widest with one, and one beyond.
  for (std::int64_t columns : {2048, 2052, 4096, 4104}) {
    expect_like_cpu(backward_case(5, columns, DType::kF32, host), 2e-5, concat(columns, " columns"),
                    [](const Tensors& t, const Stream& s) {
                      backward(GradientMode::kOverwrite, GradientMode::kOverwrite, t, s);
                    });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
