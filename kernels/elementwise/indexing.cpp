#include "kernels/generated/indexing.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

namespace {

void check_columns(const KernelCall& call, const char* name, const Columns& columns,
                   std::int64_t rows, std::int64_t count, DType dtype) {
  check_rank(call, {name, columns.rows}, 2, dtype);
  if (columns.rows.size(0) == rows && columns.first >= 0 && count >= 0 &&
      columns.first + count <= columns.rows.size(1))
    return;
  throw_mismatch(call, name, " is ", columns.rows.shape().text(), ", want ", rows,
                 " rows with columns ", columns.first, " to ", columns.first + count);
}

/// Checks that tables (V, C) and (max T, C) fit rows (B, T, C) at positions from `first_position`.
void check_tables(const KernelCall& call, const NamedTensor& rows, const Tensor& tokens,
                  const NamedTensor& token_table, const NamedTensor& position_table,
                  std::int64_t first_position) {
  check_rank(call, {"tokens", tokens}, 2, DType::kI32);
  check_rank(call, token_table, 2);
  const std::int64_t columns = token_table.tensor.size(1);
  check_shape(call, rows, {tokens.size(0), tokens.size(1), columns});
  if (!position_table.tensor) return;
  check_rank(call, position_table, 2);
  check_shape(call, position_table, {position_table.tensor.size(0), columns});
  const std::int64_t last_position = first_position + tokens.size(1);
  if (first_position < 0 || last_position > position_table.tensor.size(0))
    throw_mismatch(call, "positions are ", first_position, " to ", last_position - 1, ", ",
                   position_table.name, " is ", position_table.tensor.shape().text(),
                   "; use a shorter sequence or a larger model.context");
}

void check_gathered_columns(const KernelCall& call, const Tensor& columns, const Tensor& x,
                            const Tensor& indices) {
  check_rank(call, {"x", x}, 2);
  check_rank(call, {"indices", indices}, 1, DType::kI32);
  check_shape(call, {"columns", columns}, {indices.size(0), x.size(0)}, DType::kF32);
}

}  // namespace

void copy_columns(const Columns& to, const Columns& from, std::int64_t count,
                  const Stream& stream) {
  const KernelCall call{"copy_columns", stream, Work::kElementwise};
  check_rank(call, {"from", from.rows}, 2);
  if (from.rows.dtype() != DType::kI32) check_real(call, {"from", from.rows});
  check_columns(call, "from", from, from.rows.size(0), count, from.rows.dtype());
  check_columns(call, "to", to, from.rows.size(0), count, from.rows.dtype());
  dispatch<cpu::copy_columns, cuda::copy_columns>(call, to, from, count);
}

void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream) {
  const KernelCall call{"add_columns", stream, Work::kElementwise};
  check_real(call, {"from", from.rows}, 2);
  check_columns(call, "from", from, from.rows.size(0), count, from.rows.dtype());
  check_columns(call, "to", to, from.rows.size(0), count, from.rows.dtype());
  dispatch<cpu::add_columns, cuda::add_columns>(call, to, from, count);
}

void multiply_columns(const Columns& to, const Columns& a, const Columns& b, std::int64_t count,
                      const Stream& stream) {
  const KernelCall call{"multiply_columns", stream, Work::kElementwise};
  check_real(call, {"a", a.rows}, 2);
  const std::int64_t rows = a.rows.size(0);
  check_columns(call, "a", a, rows, count, a.rows.dtype());
  check_columns(call, "b", b, rows, count, a.rows.dtype());
  check_columns(call, "to", to, rows, count, a.rows.dtype());
  dispatch<cpu::multiply_columns, cuda::multiply_columns>(call, to, a, b, count);
}

void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream) {
  const KernelCall call{"sigmoid_gate_forward", stream, Work::kElementwise};
  check_real(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"y", y}});
  check_columns(call, "gate", gate, x.size(0), x.size(1), x.dtype());
  dispatch<cpu::sigmoid_gate_forward, cuda::sigmoid_gate_forward>(call, y, x, gate);
}

void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream) {
  const KernelCall call{"sigmoid_gate_backward", stream, Work::kElementwise};
  check_real(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_columns(call, "gate", gate, x.size(0), x.size(1), x.dtype());
  check_columns(call, "dgate", dgate, x.size(0), x.size(1), x.dtype());
  dispatch<cpu::sigmoid_gate_backward, cuda::sigmoid_gate_backward>(call, dx, dgate, dy, x, gate);
}

void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream) {
  const KernelCall call{"embedding_forward", stream, Work::kEmbedding};
  check_tables(call, {"y", y}, tokens, {"token_table", token_table},
               {"position_table", position_table}, first_position);
  check_real(call, {"y", y});
  check_dtype(call, {"token_table", token_table}, y.dtype());
  if (position_table) check_dtype(call, {"position_table", position_table}, y.dtype());
  dispatch<cpu::embedding_forward, cuda::embedding_forward>(call, y, tokens, token_table,
                                                            position_table, first_position);
}

void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream) {
  const KernelCall call{"embedding_backward", stream, Work::kEmbedding};
  check_tables(call, {"dy", dy}, tokens, {"dtoken_table", dtoken_table},
               {"dposition_table", dposition_table}, 0);
  check_real(call, {"dy", dy});
  check_dtype(call, {"dtoken_table", dtoken_table}, DType::kF32);
  if (dposition_table) check_dtype(call, {"dposition_table", dposition_table}, DType::kF32);
  dispatch<cpu::embedding_backward, cuda::embedding_backward>(
      call, dtoken_table, token_mode, dposition_table, position_mode, dy, tokens);
}

void gather_columns(const Tensor& columns, const Tensor& x, const Tensor& indices,
                    const Stream& stream) {
  const KernelCall call{"gather_columns", stream, Work::kOptimizer};
  check_gathered_columns(call, columns, x, indices);
  check_dtype(call, {"x", x}, DType::kF32);
  dispatch<cpu::gather_columns, cuda::gather_columns>(call, columns, x, indices);
}

void scatter_columns(const Tensor& x, const Tensor& columns, const Tensor& indices,
                     const Stream& stream) {
  const KernelCall call{"scatter_columns", stream, Work::kOptimizer};
  check_gathered_columns(call, columns, x, indices);
  check_real(call, {"x", x});
  dispatch<cpu::scatter_columns, cuda::scatter_columns>(call, x, columns, indices);
}

}  // namespace hybrid_trainer::kernels
