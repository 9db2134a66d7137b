#include "hybrid_trainer/kernels/low_rank.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::spread_blocks) spread_blocks;
decltype(kernels::gather_blocks) gather_blocks;
}  // namespace cpu
namespace cuda {
decltype(kernels::spread_blocks) spread_blocks;
decltype(kernels::gather_blocks) gather_blocks;
}  // namespace cuda

namespace {

void check_blocks(const KernelCall& call, const Tensor& wide, const Tensor& stacked,
                  const DiagonalBlocks& blocks) {
  check_rank(call, {"wide", wide}, 2);
  check_shape(call, {"wide", wide}, {wide.size(0), blocks.columns()});
  check_shape(call, {"stacked", stacked}, {blocks.stacked_rows(), blocks.rank}, DType::kF32);
  for (int p = 0; p < blocks.count; ++p) {
    const auto at = static_cast<std::size_t>(p);
    if (blocks.first_row[at] >= 0 && blocks.first_row[at] + blocks.rows[at] <= wide.size(0))
      continue;
    throw ShapeMismatch(concat(call.kernel, ": block ", p, " has ", blocks.rows[at],
                               " rows from row ", blocks.first_row[at], " on, wide has ",
                               wide.size(0)));
  }
}

}  // namespace

void spread_blocks(const Tensor& wide, const Tensor& stacked, const DiagonalBlocks& blocks,
                   float scale, const Stream& stream) {
  const KernelCall call{"spread_blocks", stream};
  check_real(call, {"wide", wide});
  check_blocks(call, wide, stacked, blocks);
  dispatch<cpu::spread_blocks, cuda::spread_blocks>(call, Work::kElementwise, wide, stacked, blocks,
                                                    scale);
}

void gather_blocks(const Tensor& stacked, const Tensor& wide, const DiagonalBlocks& blocks,
                   float scale, GradientMode mode, const Stream& stream) {
  const KernelCall call{"gather_blocks", stream};
  check_dtype(call, {"wide", wide}, DType::kF32);
  check_blocks(call, wide, stacked, blocks);
  dispatch<cpu::gather_blocks, cuda::gather_blocks>(call, Work::kElementwise, stacked, wide, blocks,
                                                    scale, mode);
}

}  // namespace hybrid_trainer::kernels
