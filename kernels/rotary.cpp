#include "hybrid_trainer/kernels/rotary.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::rotate) rotate;
}  // namespace cpu
namespace cuda {
decltype(kernels::rotate) rotate;
}  // namespace cuda

void rotate(const Tensor& x, std::int64_t heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream) {
  const KernelCall call{"rotate", stream};
  check_real(call, {"x", x}, 3);
  check_rank(call, {"table", table}, 2);
  check_dtype(call, {"table", table}, DType::kF32);
  if (positions) {
    check_shape(call, {"positions", positions}, {x.size(0), x.size(1)}, DType::kI32);
  }
  if (first_position < 0 || first_position + x.size(1) > table.size(0) || table.size(1) % 2 != 0 ||
      heads < 0 || heads * table.size(1) > x.size(2)) {
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(), " from position ",
                               first_position, " on, heads is ", heads, ", table is ",
                               table.shape().text(), "; want a row of it for each position and ",
                               "an even head size of which `heads` fit"));
  }
  dispatch<cpu::rotate, cuda::rotate>(call, Work::kElementwise, x, heads, table, first_position,
                                      positions, rotation);
}

}  // namespace hybrid_trainer::kernels
