#include "kernels/backend/dispatch.h"
#include "kernels/generated/matmul.h"
#include "kernels/generated/weight_decomposition.h"

namespace hybrid_trainer::kernels {

namespace {

/// Checks that the blocks are within `rows` rows. `what` describes these, as in "wide has ".
void check_rows_of_blocks(const KernelCall& call, const char* what, std::int64_t rows,
                          const DiagonalBlocks& blocks) {
  for (int p = 0; p < blocks.count; ++p) {
    const auto at = static_cast<std::size_t>(p);
    if (blocks.first_row[at] >= 0 && blocks.first_row[at] + blocks.rows[at] <= rows) continue;
    throw_mismatch(call, "block ", p, " has ", blocks.rows[at], " rows from row ",
                   blocks.first_row[at], ", but ", what, rows);
  }
}

void check_blocks(const KernelCall& call, const Tensor& wide, const Tensor& stacked,
                  const DiagonalBlocks& blocks) {
  check_rank(call, {"wide", wide}, 2);
  check_shape(call, {"wide", wide}, {wide.size(0), blocks.columns()});
  check_shape(call, {"stacked", stacked}, {blocks.stacked_rows(), blocks.rank}, DType::kF32);
  check_rows_of_blocks(call, "wide has ", wide.size(0), blocks);
}

void check_row(const KernelCall& call, const NamedTensor& row, std::int64_t elements) {
  check_shape(call, row, {elements}, DType::kF32);
}

}  // namespace

void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream) {
  const KernelCall call{"spread_blocks", stream, Work::kElementwise};
  check_real(call, {"wide", wide});
  check_blocks(call, wide, stacked, blocks);
  dispatch<cpu::spread_blocks, cuda::spread_blocks>(call, wide, stacked, blocks, scale);
}

void gather_blocks(const Tensor& stacked, const Tensor& wide, const DiagonalBlocks& blocks,
                   float scale, GradientMode mode, const Stream& stream) {
  const KernelCall call{"gather_blocks", stream, Work::kElementwise};
  check_dtype(call, {"wide", wide}, DType::kF32);
  check_blocks(call, wide, stacked, blocks);
  dispatch<cpu::gather_blocks, cuda::gather_blocks>(call, stacked, wide, blocks, scale, mode);
}

void row_norms(const Tensor& norms, const Tensor& x, const Stream& stream) {
  const KernelCall call{"row_norms", stream, Work::kElementwise};
  check_rank(call, {"x", x}, 2, DType::kF32);
  check_row(call, {"norms", norms}, x.size(0));
  dispatch<cpu::row_norms, cuda::row_norms>(call, norms, x);
}

void magnitude_factors(const Tensor& factors, const Tensor& magnitudes, const Tensor& norms,
                       const DiagonalBlocks& blocks, const Stream& stream) {
  const KernelCall call{"magnitude_factors", stream, Work::kElementwise};
  check_row(call, {"factors", factors}, factors.elements());
  check_row(call, {"norms", norms}, factors.elements());
  check_row(call, {"magnitudes", magnitudes}, blocks.stacked_rows());
  check_rows_of_blocks(call, "the number of outputs is ", factors.elements(), blocks);
  dispatch<cpu::magnitude_factors, cuda::magnitude_factors>(call, factors, magnitudes, norms,
                                                            blocks);
}

void gather_rows(const Tensor& stacked, const Tensor& wide, const Tensor& norms,
                 const DiagonalBlocks& blocks, GradientMode mode, const Stream& stream) {
  const KernelCall call{"gather_rows", stream, Work::kElementwise};
  check_row(call, {"stacked", stacked}, blocks.stacked_rows());
  check_row(call, {"wide", wide}, wide.elements());
  if (norms) check_row(call, {"norms", norms}, wide.elements());
  check_rows_of_blocks(call, "the number of outputs is ", wide.elements(), blocks);
  dispatch<cpu::gather_rows, cuda::gather_rows>(call, stacked, wide, norms, blocks, mode);
}

void scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors, const Tensor& bias,
                   const Tensor& residual, const Stream& stream) {
  const KernelCall call{"scale_columns", stream, Work::kElementwise};
  check_rank(call, {"x", x}, 2);
  check_matching_real(call, {{"x", x}, {"y", y}});
  if (residual) check_matching(call, {{"x", x}, {"residual", residual}});
  check_row(call, {"factors", factors}, x.size(1));
  if (bias) check_row(call, {"bias", bias}, x.size(1));
  dispatch<cpu::scale_columns, cuda::scale_columns>(call, y, x, factors, bias, residual);
}

void multiply(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream) {
  const KernelCall call{"multiply", stream, Work::kElementwise};
  check_matching_real(call, {{"y", y}, {"x", x}, {"z", z}});
  dispatch<cpu::multiply, cuda::multiply>(call, y, x, z);
}

}  // namespace hybrid_trainer::kernels
