#include <algorithm>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/kernels/matmul.h"
#include "src/core/messages.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::kernels {
namespace {

/// While alive, makes the library lack kernels for these products and collects warnings.
struct Lacking {
  explicit Lacking(const std::string& products) {
    emulation::device().refuses = products;
    send_warnings_to(&warnings);
  }
  ~Lacking() {
    emulation::device().refuses.clear();
    send_warnings_to(&std::cerr);
  }
  std::ostringstream warnings;
};

void expect_linear_layers_like_cpu() {
  const Stream host = cpu_stream();
  for (DType dtype : kRealTypes) {
    for (const std::int64_t n : {16, 21}) {
      const Tensors tensors{
          random_tensor({9, n}, dtype, 1, host),    random_tensor({9, n}, dtype, 2, host),
          random_tensor({9, 12}, dtype, 3, host),   random_tensor({n, 12}, dtype, 4, host),
          random_tensor({n}, DType::kF32, 5, host), random_tensor({12, n}, dtype, 6, host)};
      expect_like_cpu(tensors, 2 * tolerance_of(dtype), concat(n, " ", name_of(dtype)),
                      [](const Tensors& t, const Stream& stream) {
                        linear_forward(t[0], t[2], t[3], t[4], t[1], stream);
                        linear_gelu_forward(t[0], t[1], t[2], t[3], t[4], stream);
                        linear_gelu_backward_input(t[0], t[2], t[5], t[1], stream);
                      });
    }
  }
}

TEST(CudaProduct, FallsBackForUnsupportedEpilogues) {
  const Lacking none("epilogue");
  expect_linear_layers_like_cpu();
  EXPECT_EQ(none.warnings.str(), "");
}

TEST(CudaProduct, FallsBackForUnsupportedProducts) {
  const Lacking none("product");
  expect_linear_layers_like_cpu();
  const Stream host = cpu_stream();
  const auto stored = [](Transpose transpose, std::int64_t rows, std::int64_t columns) {
    return transpose == Transpose::kNo ? Shape{rows, columns} : Shape{columns, rows};
  };
  for (const auto& [in, out] :
       {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kF32},
        std::pair{DType::kBF16, DType::kBF16}}) {
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
          const Tensors tensors{random_tensor({67, 130}, out, 3, host),
                                random_tensor(stored(ta, 67, 35), in, 1, host),
                                random_tensor(stored(tb, 35, 130), in, 2, host)};
          expect_like_cpu(tensors, tolerance_of(out), concat(name_of(in), " ", name_of(out)),
                          [&, ta = ta, tb = tb, mode = mode](const Tensors& t, const Stream& s) {
                            matmul(t[0], t[1], ta, t[2], tb, mode, s);
                          });
        }
      }
    }
  }
}

TEST(CudaProduct, WarnsOnceOfUnsupportedProduct) {
  const Lacking none("product");
  const Stream stream = cuda_stream();
  const Tensor a = Tensor::zeros({3, 3}, DType::kF32, MemoryKind::kActivations, stream);
  const Tensor c = Tensor::empty_like(a, MemoryKind::kActivations, stream);
  for (int i = 0; i < 2; ++i)
    matmul(c, a, Transpose::kNo, a, Transpose::kYes, GradientMode::kOverwrite, stream);
  stream.synchronize();
  const std::string said = none.warnings.str();
  EXPECT_EQ(said.find("warning: cuBLASLt: no kernel supports the product 3 3 3 nt f32 f32"), 0u)
      << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

}  // namespace
}  // namespace hybrid_trainer::kernels
