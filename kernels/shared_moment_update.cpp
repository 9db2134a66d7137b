#include "hybrid_trainer/kernels/shared_moment_update.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::adam_mini_update) adam_mini_update;
decltype(kernels::adam_mini_direction) adam_mini_direction;
decltype(kernels::adafactor_update) adafactor_update;
}  // namespace cpu
namespace cuda {
decltype(kernels::adam_mini_update) adam_mini_update;
decltype(kernels::adam_mini_direction) adam_mini_direction;
decltype(kernels::adafactor_update) adafactor_update;
}  // namespace cuda

namespace {

void check_blocks(const KernelCall& call, const Tensor& v, const Tensor& m) {
  check_rank(call, {"v", v}, 1);
  check_dtype(call, {"v", v}, DType::kF32);
  if (v.elements() > 0 && m.elements() % v.elements() == 0) return;
  throw ShapeMismatch(concat(call.kernel, ": v has ", v.elements(), " blocks, which do not divide ",
                             m.elements(), " elements"));
}

}  // namespace

void adam_mini_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                      const Tensor& compute_copy, const AdamWSettings& settings,
                      const Stream& stream) {
  const KernelCall call{"adam_mini_update", stream};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  check_alike(call, {{"w", w}, {"m", m}});
  check_blocks(call, v, m);
  require(settings.step >= 1, "adam_mini_update: step must be at least 1");
  dispatch<cpu::adam_mini_update, cuda::adam_mini_update>(call, Work::kOptimizer, w, m, v, g,
                                                          compute_copy, settings);
}

void adam_mini_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                         const AdamWSettings& settings, const Stream& stream) {
  const KernelCall call{"adam_mini_direction", stream};
  check_dtype(call, {"direction", direction}, DType::kF32);
  check_alike(call, {{"direction", direction}, {"m", m}});
  check_blocks(call, v, m);
  require(settings.step >= 1, "adam_mini_direction: step must be at least 1");
  dispatch<cpu::adam_mini_direction, cuda::adam_mini_direction>(call, Work::kOptimizer, direction,
                                                                m, v, settings);
}

void adafactor_update(const Tensor& w, const Tensor& rows, const Tensor& columns, const Tensor& g,
                      const Tensor& compute_copy, const AdafactorSettings& settings,
                      const Stream& stream) {
  const KernelCall call{"adafactor_update", stream};
  check_update(call, {"w", w}, {"g", g}, {"compute_copy", compute_copy});
  const Shape matrix = w.as_rows().shape();
  check_shape(call, {"rows", rows}, {matrix[0]}, DType::kF32);
  check_shape(call, {"columns", columns}, {matrix[1]}, DType::kF32);
  dispatch_with_workspace<cpu::adafactor_update, cuda::adafactor_update>(
      call, Work::kOptimizer, w, rows, columns, g, compute_copy, settings);
}

}  // namespace hybrid_trainer::kernels
