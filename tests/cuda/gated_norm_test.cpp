#include "hybrid_trainer/kernels/normalization.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

struct GatedNormCase {
  std::int64_t rows, columns;
  GatedNormSpec spec = {};
  bool shared = false;  // one weight for all groups
  std::int64_t first = 8;

  std::string text(DType dtype) const {
    return concat(rows, " rows of ", columns, " in ", spec.groups, " groups, ", name_of(dtype));
  }
  /// {x, gate, weight, y or dy, dx, dgate, dweight}.
  Tensors tensors(DType dtype, const Stream& host) const {
    const Shape wide{rows, columns + 16}, own{rows, columns},
        weights{shared ? columns / spec.groups : columns};
    return {random_tensor(own, dtype, 1, host),           random_tensor(wide, dtype, 2, host),
            random_tensor(weights, DType::kF32, 3, host), random_tensor(own, dtype, 4, host),
            random_tensor(own, dtype, 5, host),           random_tensor(wide, dtype, 6, host),
            random_tensor(weights, DType::kF32, 7, host)};
  }
};

/// Teams of a few lanes and of a block, rows with and without vector loads, sums that fit in
/// registers and sums that do not.
const std::vector<GatedNormCase> kGatedNorms{
    {.rows = 5, .columns = 64, .spec = {.groups = 4}},
    {.rows = 3, .columns = 48, .spec = {.groups = 3, .norm_first = true}, .shared = true},
    {.rows = 40, .columns = 7, .first = 3},
    {.rows = 3, .columns = 520, .spec = {.groups = 2, .norm_first = true}, .first = 4},
    {.rows = 2, .columns = 2056},
    {.rows = 2, .columns = 1001, .first = 1},
    {.rows = 520, .columns = 4},
};

double gated_tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 2e-2; }

TEST(CudaGatedNorm, ForwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const GatedNormCase& one : kGatedNorms) {
      expect_like_cpu(one.tensors(dtype, host), gated_tolerance(dtype), one.text(dtype),
                      [&](const Tensors& t, const Stream& s) {
                        gated_norm_forward(t[3], t[0], t[1], one.first, t[2], one.spec, s);
                      });
    }
  }
}

TEST(CudaGatedNorm, BackwardMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const GatedNormCase& one : kGatedNorms) {
      const GradientMode mode =
          one.rows == 3 ? GradientMode::kAccumulate : GradientMode::kOverwrite;
      expect_like_cpu(one.tensors(dtype, host), gated_tolerance(dtype), one.text(dtype),
                      [&](const Tensors& t, const Stream& s) {
                        gated_norm_backward(t[4], t[5], t[6], mode, t[3], t[0], t[1], one.first,
                                            t[2], one.spec, s);
                      });
    }
  }
}

TEST(CudaGatedNorm, InPlaceBackwardMatchesCpu) {
  const Stream host = cpu_stream();
  const GatedNormCase one{.rows = 6, .columns = 300};
  expect_like_cpu(one.tensors(DType::kF32, host), 2e-5, "in place",
                  [&](const Tensors& t, const Stream& s) {
                    gated_norm_backward(t[3], t[5], t[6], GradientMode::kOverwrite, t[3], t[0],
                                        t[1], 8, t[2], {}, s);
                  });
}

}  // namespace
}  // namespace hybrid_trainer::kernels
