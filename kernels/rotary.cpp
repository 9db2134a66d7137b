#include "hybrid_trainer/kernels/rotary.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::rotate) rotate;
}  // namespace cpu
namespace cuda {
decltype(kernels::rotate) rotate;
}  // namespace cuda

void rotate(const Tensor& x, RotatedHeads heads, const Tensor& table, std::int64_t first_position,
            const Tensor& positions, Rotation rotation, const Stream& stream) {
  const KernelCall call{"rotate", stream};
  check_real(call, {"x", x}, 3);
  check_rank(call, {"table", table}, 2);
  check_dtype(call, {"table", table}, DType::kF32);
  if (positions) {
    check_shape(call, {"positions", positions}, {x.size(0), x.size(1)}, DType::kI32);
  }
  const std::int64_t size = heads.size_or(table.size(1));
  if (first_position < 0 || first_position + x.size(1) > table.size(0) || table.size(1) % 2 != 0 ||
      heads.count < 0 || size < table.size(1) || heads.count * size > x.size(2)) {
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(), " from position ",
                               first_position, " on, heads is ", heads.count, " of ", size,
                               ", table is ", table.shape().text(),
                               "; want a row of it for each position and an even number of turned ",
                               "channels, in heads that fit"));
  }
  dispatch<cpu::rotate, cuda::rotate>(call, Work::kElementwise, x, heads, table, first_position,
                                      positions, rotation);
}

}  // namespace hybrid_trainer::kernels
