#include "hybrid_trainer/kernels/columns.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::copy_columns) copy_columns;
decltype(kernels::add_columns) add_columns;
decltype(kernels::sigmoid_gate_forward) sigmoid_gate_forward;
decltype(kernels::sigmoid_gate_backward) sigmoid_gate_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::copy_columns) copy_columns;
decltype(kernels::add_columns) add_columns;
decltype(kernels::sigmoid_gate_forward) sigmoid_gate_forward;
decltype(kernels::sigmoid_gate_backward) sigmoid_gate_backward;
}  // namespace cuda

namespace {

/// `count` columns of `rows` rows of the dtype.
void check_columns(const KernelCall& call, const char* name, const Columns& columns,
                   std::int64_t rows, std::int64_t count, DType dtype) {
  check_rank(call, {name, columns.rows}, 2);
  check_dtype(call, {name, columns.rows}, dtype);
  if (columns.rows.size(0) == rows && columns.first >= 0 && count >= 0 &&
      columns.first + count <= columns.rows.size(1))
    return;
  throw ShapeMismatch(concat(call.kernel, ": ", name, " is ", columns.rows.shape().text(),
                             ", want ", rows, " rows with columns ", columns.first, " to ",
                             columns.first + count));
}

}  // namespace

void copy_columns(const Columns& to, const Columns& from, std::int64_t count,
                  const Stream& stream) {
  const KernelCall call{"copy_columns", stream};
  check_rank(call, {"from", from.rows}, 2);
  if (from.rows.dtype() != DType::kI32) check_real(call, {"from", from.rows});
  check_columns(call, "from", from, from.rows.size(0), count, from.rows.dtype());
  check_columns(call, "to", to, from.rows.size(0), count, from.rows.dtype());
  dispatch<cpu::copy_columns, cuda::copy_columns>(call, Work::kElementwise, to, from, count);
}

void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream) {
  const KernelCall call{"add_columns", stream};
  check_real(call, {"from", from.rows}, 2);
  check_columns(call, "from", from, from.rows.size(0), count, from.rows.dtype());
  check_columns(call, "to", to, from.rows.size(0), count, from.rows.dtype());
  dispatch<cpu::add_columns, cuda::add_columns>(call, Work::kElementwise, to, from, count);
}

void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream) {
  const KernelCall call{"sigmoid_gate_forward", stream};
  check_real(call, {"x", x}, 2);
  check_alike_real(call, {{"x", x}, {"y", y}});
  check_columns(call, "gate", gate, x.size(0), x.size(1), x.dtype());
  dispatch<cpu::sigmoid_gate_forward, cuda::sigmoid_gate_forward>(call, Work::kElementwise, y, x,
                                                                  gate);
}

void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream) {
  const KernelCall call{"sigmoid_gate_backward", stream};
  check_real(call, {"x", x}, 2);
  check_alike_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_columns(call, "gate", gate, x.size(0), x.size(1), x.dtype());
  check_columns(call, "dgate", dgate, x.size(0), x.size(1), x.dtype());
  dispatch<cpu::sigmoid_gate_backward, cuda::sigmoid_gate_backward>(call, Work::kElementwise, dx,
                                                                    dgate, dy, x, gate);
}

}  // namespace hybrid_trainer::kernels
