#include "hybrid_trainer/kernels/matmul.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct Size {
  std::int64_t m, n, k;
};
/// Rows that are and are not multiples of 8, which decides whether GELU is fused with the product.
constexpr Size kProductSizes[] = {{1, 1, 1}, {3, 50, 7}, {65, 72, 129}, {40, 64, 24}};

struct Types {
  DType inputs, output;
};
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}};

double with_gelu(DType dtype) { return std::max(tolerance_of(dtype), gelu_tolerance()); }

std::string text(const Size& s, DType dtype) {
  return concat(s.m, "x", s.n, "x", s.k, " ", name_of(dtype));
}

TEST(CudaMatmul, MatchesCpuInAllLayoutsModesAndDtypes) {
  const Stream host = cpu_stream();
  const auto stored = [](Transpose transpose, std::int64_t rows, std::int64_t columns) {
    return transpose == Transpose::kNo ? Shape{rows, columns} : Shape{columns, rows};
  };
  for (const Size& s : kProductSizes) {
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        for (const Types& types : kTypes) {
          for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
            const Tensors tensors{random_tensor({s.m, s.n}, types.output, 3, host),
                                  random_tensor(stored(ta, s.m, s.k), types.inputs, 1, host),
                                  random_tensor(stored(tb, s.k, s.n), types.inputs, 2, host)};
            expect_like_cpu(tensors, tolerance_of(types.output), text(s, types.inputs),
                            [&](const Tensors& t, const Stream& stream) {
                              matmul(t[0], t[1], ta, t[2], tb, mode, stream);
                            });
          }
        }
      }
    }
  }
}

TEST(CudaMatmul, MatchesCpuOnRowRanges) {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    const Tensors tensors{random_tensor({12, 9}, dtype, 1, host),
                          random_tensor({11, 7}, dtype, 2, host),
                          random_tensor({8, 9}, dtype, 3, host)};
    expect_like_cpu(tensors, tolerance_of(dtype), "rows",
                    [](const Tensors& t, const Stream& stream) {
                      matmul(t[0].rows(3, 8), t[1].rows(1, 6), Transpose::kNo, t[2].rows(1, 8),
                             Transpose::kNo, GradientMode::kOverwrite, stream);
                    });
  }
}

TEST(CudaLinear, ForwardWithBiasAndResidualMatchesCpu) {
  const Stream host = cpu_stream();
  for (const Size& s : kProductSizes) {
    for (DType dtype : kRealTypes) {
      for (int parts = 0; parts < 5; ++parts) {
        const bool in_place = parts == 4;
        const Tensors tensors{
            random_tensor({s.m, s.n}, dtype, 1, host), random_tensor({s.m, s.k}, dtype, 2, host),
            random_tensor({s.n, s.k}, dtype, 3, host),
            (parts & 1) != 0 ? random_tensor({s.n}, DType::kF32, 4, host) : Tensor(),
            (parts & 2) != 0 ? random_tensor({s.m, s.n}, dtype, 5, host) : Tensor()};
        // For unaligned rows, cuBLASLt rounds the product before it adds the other terms.
        const bool aligned = s.n % 8 == 0 && s.k % 8 == 0;
        const bool rounds_twice = dtype == DType::kBF16 && parts > 0 && !aligned;
        expect_like_cpu(tensors, (rounds_twice ? 2 : 1) * tolerance_of(dtype), text(s, dtype),
                        [&](const Tensors& t, const Stream& stream) {
                          linear_forward(t[0], t[1], t[2], t[3], in_place ? t[0] : t[4], stream);
                        });
      }
    }
  }
}

TEST(CudaLinear, GeluForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const Size& s : kProductSizes) {
    for (DType dtype : kRealTypes) {
      for (int parts = 0; parts < 4; ++parts) {
        const Tensors tensors{
            random_tensor({s.m, s.n}, dtype, 1, host),
            (parts & 1) != 0 ? random_tensor({s.m, s.n}, dtype, 2, host) : Tensor(),
            random_tensor({s.m, s.k}, dtype, 3, host), random_tensor({s.n, s.k}, dtype, 4, host),
            (parts & 2) != 0 ? random_tensor({s.n}, DType::kF32, 5, host) : Tensor()};
        expect_like_cpu(tensors, with_gelu(dtype), text(s, dtype),
                        [](const Tensors& t, const Stream& stream) {
                          linear_gelu_forward(t[0], t[1], t[2], t[3], t[4], stream);
                        });
      }
    }
  }
}

TEST(CudaLinear, GeluBackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const Size& s : kProductSizes) {
    for (DType dtype : kRealTypes) {
      const Tensors tensors{
          random_tensor({s.m, s.n}, dtype, 1, host), random_tensor({s.m, s.k}, dtype, 2, host),
          random_tensor({s.k, s.n}, dtype, 3, host), random_tensor({s.m, s.n}, dtype, 4, host)};
      // The CPU rounds the product before it applies GELU.
      expect_like_cpu(tensors, 2 * with_gelu(dtype), text(s, dtype),
                      [](const Tensors& t, const Stream& stream) {
                        linear_gelu_backward_input(t[0], t[1], t[2], t[3], stream);
                      });
    }
  }
}

TEST(CudaLinear, GeluUsesTanhApproximation) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  const Tensor one = copy_to(tensor_of({1}, {1, 1}, DType::kF32, host), stream);
  for (const double x : {-3.0, -0.7, 0.0, 0.7, 3.0}) {
    const Tensor w = copy_to(tensor_of(Values(8, x), {8, 1}, DType::kF32, host), stream);
    const Tensor active = Tensor::empty({1, 8}, DType::kF32, MemoryKind::kActivations, stream);
    const Tensor pre_activation = Tensor::empty_like(active, MemoryKind::kActivations, stream);
    linear_gelu_forward(active, pre_activation, one, w, Tensor(), stream);
    const double gelu = x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    expect_close(wait_for_host(active, stream), Values(8, gelu), gelu_tolerance());
    expect_close(wait_for_host(pre_activation, stream), Values(8, x), 1e-7);
  }
}

TEST(CudaLinear, WeightAndBiasGradientsMatchCpu) {
  const Stream host = cpu_stream();
  for (const Size& s : kProductSizes) {
    for (DType dtype : kRealTypes) {
      for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
        const Tensors tensors{random_tensor({s.m, s.n}, DType::kF32, 1, host),
                              random_tensor({s.m}, DType::kF32, 2, host),
                              random_tensor({s.k, s.m}, dtype, 3, host),
                              random_tensor({s.k, s.n}, dtype, 4, host)};
        expect_like_cpu(tensors, 1e-5, text(s, dtype), [&](const Tensors& t, const Stream& stream) {
          linear_backward_parameters(t[0], t[1], t[2], t[3], mode, stream);
        });
      }
    }
  }
}

TEST(CudaBias, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  constexpr Size kGradients[] = {{1, 1, 0}, {5, 33, 0}, {300, 24, 0}, {129, 264, 0}, {2100, 8, 0}};
  for (const Size& s : kGradients) {
    for (DType dtype : kRealTypes) {
      for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
        const Tensors tensors{random_tensor({s.n}, DType::kF32, 1, host),
                              random_tensor({s.m + 1, s.n}, dtype, 2, host)};
        expect_like_cpu(tensors, 1e-5, text(s, dtype), [&](const Tensors& t, const Stream& stream) {
          bias_backward(t[0], t[1].rows(1, s.m + 1), mode, stream);
        });
      }
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
