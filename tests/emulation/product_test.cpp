#include "hybrid_trainer/kernels/matmul.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::kernels {
namespace {

/// While it lives the library has no kernels with an epilogue.
struct NoEpilogues {
  NoEpilogues() { emulation::device().refuses = "epilogue"; }
  ~NoEpilogues() { emulation::device().refuses.clear(); }
};

TEST(CudaProduct, EpiloguesThatTheLibraryLacksAreDoneAfterIt) {
  const NoEpilogues none;
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

}  // namespace
}  // namespace hybrid_trainer::kernels
