#include "hybrid_trainer/kernels/elementwise.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

double value_of(double x, ActivationKind kind) {
  if (kind == ActivationKind::kRelu) return std::max(x, 0.0);
  if (kind == ActivationKind::kSilu) return x / (1 + std::exp(-x));
  return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
}

TEST(Activation, MatchesFormulaAndDerivative) {
  const Stream stream = cpu_stream();
  for (const ActivationKind kind :
       {ActivationKind::kRelu, ActivationKind::kSilu, ActivationKind::kGelu}) {
    for (const DType dtype : kRealTypes) {
      const Tensor x = random_tensor({70, 13}, dtype, 1, stream, 4),
                   dy = random_tensor({70, 13}, dtype, 2, stream);
      const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
      activation_forward(y, x, kind, stream);
      Values wanted, slopes;
      for (std::size_t i = 0; i < static_cast<std::size_t>(x.elements()); ++i) {
        const double at = values_of(x)[i], step = 1e-5;
        wanted.push_back(value_of(at, kind));
        slopes.push_back(values_of(dy)[i] *
                         (value_of(at + step, kind) - value_of(at - step, kind)) / (2 * step));
      }
      expect_close(y, wanted, dtype == DType::kF32 ? 1e-6 : 4e-3, "y");
      activation_backward(dy, dy, x, kind, stream);
      expect_close(dy, slopes, dtype == DType::kF32 ? 2e-6 : 4e-3, "dx");
    }
  }
}

TEST(Activation, PropagatesNaNAndHandlesLargeInputs) {
  const Stream stream = cpu_stream();
  const Tensor x = tensor_of({std::nan(""), 1e4, -1e4}, {3}, DType::kF32, stream);
  for (const ActivationKind kind :
       {ActivationKind::kRelu, ActivationKind::kSilu, ActivationKind::kGelu}) {
    const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    activation_forward(y, x, kind, stream);
    EXPECT_TRUE(std::isnan(values_of(y)[0]));
    EXPECT_EQ(values_of(y)[1], 1e4);
    EXPECT_NEAR(values_of(y)[2], 0, 1e-30);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
