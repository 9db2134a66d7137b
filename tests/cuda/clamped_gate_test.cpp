#include "hybrid_trainer/kernels/elementwise.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaClampedGate, MatchesCpu) {
  const Stream host = cpu_stream();
  const ClampedGate gate{.limit = 2};
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t columns : {7, 24, 136}) {  // without and with vector loads
      const Tensors tensors{random_tensor({5, columns}, dtype, 1, host),
                            random_tensor({5, 2 * columns}, dtype, 2, host, 3)};
      const std::string of = concat(columns, " ", name_of(dtype));
      expect_like_cpu(tensors, tolerance_of(dtype), "forward " + of,
                      [&](const Tensors& t, const Stream& stream) {
                        clamped_gate_forward(t[0], t[1], gate, stream);
                      });
      expect_like_cpu(tensors, tolerance_of(dtype), "backward " + of,
                      [&](const Tensors& t, const Stream& stream) {
                        clamped_gate_backward(t[1], t[0], t[1], gate, stream);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
