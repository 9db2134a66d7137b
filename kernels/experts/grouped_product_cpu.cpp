#include <vector>

#include "hybrid_trainer/kernels/experts.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/products/product_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Block size of a product. It depends neither on the number of threads nor on the number of groups
/// in a call, so that these do not change the bits.
constexpr std::int64_t kBlockRows = 256, kBlockColumns = 128;
/// Columns per block for the gradient of x, whose product has columns contiguous in the weights.
constexpr std::int64_t kWideColumns = 256;
/// Weight gradients with more elements bypass the caches: they are not read before the step ends.
constexpr std::int64_t kStreamedElements = 1 << 18;
static_assert(kBlockRows <= kMaxBlockSide && kWideColumns <= kMaxBlockSide);

struct GroupRange {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

GroupRange range_of(const GroupedRows& rows, std::size_t matrix) {
  const std::int32_t* const offsets =
      rows.offsets.data<std::int32_t>() + rows.first + static_cast<std::int64_t>(matrix);
  return {offsets[0], offsets[1]};
}

char* at(const Tensor& matrix, std::int64_t row, std::int64_t column) {
  return static_cast<char*>(matrix.raw()) +
         (row * matrix.size(1) + column) * static_cast<std::int64_t>(size_of(matrix.dtype()));
}

struct MatrixBlock {
  std::size_t matrix;
  std::int64_t row, rows, column, columns;  // range of C; row 0 may be the group's first row
};

/// Returns the blocks of all matrices' products C, each (rows_of(matrix), columns).
template <class RowsOf>
std::vector<MatrixBlock> blocks_of(std::size_t matrices, std::int64_t columns,
                                   const RowsOf& rows_of,
                                   std::int64_t block_columns = kBlockColumns) {
  std::vector<MatrixBlock> blocks;
  for (std::size_t i = 0; i < matrices; ++i) {
    const std::int64_t rows = rows_of(i);
    for (std::int64_t row = 0; row < rows; row += kBlockRows)
      for (std::int64_t column = 0; column < columns; column += block_columns)
        blocks.push_back({i, row, std::min(kBlockRows, rows - row), column,
                          std::min(block_columns, columns - column)});
  }
  return blocks;
}

/// Calls compute(block, next, scratch) for all blocks; `next` is the probable next one, or null.
template <class Compute>
void run_blocks(const std::vector<MatrixBlock>& blocks, float* scratch, std::int64_t elements,
                const Compute& compute) {
  run_tasks(std::ssize(blocks), [&](std::int64_t worker, std::int64_t i) {
    const auto at = static_cast<std::size_t>(i), next = at + static_cast<std::size_t>(threads());
    compute(blocks[at], next < blocks.size() ? &blocks[next] : nullptr,
            scratch + worker * elements);
  });
}

/// Returns the floats of scratch per thread: a block, and kFewRows rows of x.
std::int64_t scratch_elements(DType inputs, std::int64_t columns = 0) {
  return std::max({std::int64_t{1}, block_scratch_elements(inputs), kFewRows * columns});
}

Tensor scratch_of(std::int64_t elements, const Stream& stream) {
  return empty_workspace(threads() * elements, DType::kF32, stream);
}

}  // namespace

void grouped_forward(const Tensor& y, const Tensor& x, const GroupedRows& rows,
                     std::span<const Tensor> w, std::span<const Tensor> biases, GradientMode mode,
                     const Stream& stream) {
  const std::int64_t inputs = x.size(1), outputs = y.size(1);
  const std::int64_t elements = scratch_elements(x.dtype(), inputs);
  const Tensor scratch = scratch_of(elements, stream);
  if (simulated(stream)) return;
  const bool adds = mode == GradientMode::kAccumulate;
  const auto blocks =
      blocks_of(w.size(), outputs, [&](std::size_t i) { return range_of(rows, i).count(); });
  run_blocks(blocks, scratch.data<float>(), elements,
             [&](const MatrixBlock& block, const MatrixBlock* next, float* of_thread) {
               const GroupRange range = range_of(rows, block.matrix);
               const float* const bias =
                   biases.empty() ? nullptr : biases[block.matrix].data<float>() + block.column;
               const Tensor& weight = w[block.matrix];
               if (range.count() <= kFewRows) {
                 const SkinnyRows few{.y = y.rows(range.begin, range.end),
                                      .x = x.rows(range.begin, range.end),
                                      .w = weight,
                                      .bias = biases.empty() ? Tensor() : biases[block.matrix],
                                      .accumulate = adds};
                 return skinny_rows(few, block.column, block.column + block.columns, of_thread);
               }
               const std::int64_t row = range.begin + block.row;
               multiply_block(
                   {.transpose_b = Transpose::kYes,
                    .m = block.rows,
                    .n = block.columns,
                    .k = inputs,
                    .a = at(x, row, 0),
                    .stride_a = inputs,
                    .b = at(weight, block.column, 0),
                    .stride_b = inputs,
                    .c = at(y, row, block.column),
                    .stride_c = outputs,
                    .bias = bias,
                    .inputs = x.dtype(),
                    .output = y.dtype(),
                    .accumulate = adds,
                    .next_b = next == nullptr ? nullptr : at(w[next->matrix], next->column, 0)},
                   of_thread);
             });
}

void grouped_backward_input(const Tensor& dx, const Tensor& dy, const GroupedRows& rows,
                            std::span<const Tensor> w, GradientMode mode, const Stream& stream) {
  const std::int64_t elements = scratch_elements(dy.dtype());
  const Tensor scratch = scratch_of(elements, stream);
  if (simulated(stream)) return;
  const std::int64_t inputs = dx.size(1), outputs = dy.size(1);
  const auto blocks = blocks_of(
      w.size(), inputs, [&](std::size_t i) { return range_of(rows, i).count(); }, kWideColumns);
  run_blocks(blocks, scratch.data<float>(), elements,
             [&](const MatrixBlock& block, const MatrixBlock* next, float* of_thread) {
               const std::int64_t row = range_of(rows, block.matrix).begin + block.row;
               multiply_block(
                   {.m = block.rows,
                    .n = block.columns,
                    .k = outputs,
                    .a = at(dy, row, 0),
                    .stride_a = outputs,
                    .b = at(w[block.matrix], 0, block.column),
                    .stride_b = inputs,
                    .c = at(dx, row, block.column),
                    .stride_c = inputs,
                    .inputs = dy.dtype(),
                    .output = dx.dtype(),
                    .accumulate = mode == GradientMode::kAccumulate,
                    .next_b = next == nullptr ? nullptr : at(w[next->matrix], 0, next->column)},
                   of_thread);
             });
}

void grouped_backward_weight(std::span<const Tensor> dw, const Tensor& dy, const Tensor& x,
                             const GroupedRows& rows, GradientMode mode, const Stream& stream) {
  const std::int64_t elements = scratch_elements(x.dtype());
  const Tensor scratch = scratch_of(elements, stream);
  if (simulated(stream)) return;
  const std::int64_t inputs = x.size(1), outputs = dy.size(1);
  const bool streams = std::ssize(dw) * outputs * inputs > kStreamedElements;
  const auto blocks = blocks_of(dw.size(), inputs, [&](std::size_t) { return outputs; });
  run_blocks(blocks, scratch.data<float>(), elements,
             [&](const MatrixBlock& block, const MatrixBlock*, float* of_thread) {
               const GroupRange range = range_of(rows, block.matrix);
               const Tensor& to = dw[block.matrix];
               multiply_block({.transpose_a = Transpose::kYes,
                               .m = block.rows,
                               .n = block.columns,
                               .k = range.count(),
                               .a = at(dy, range.begin, block.row),
                               .stride_a = outputs,
                               .b = at(x, range.begin, block.column),
                               .stride_b = inputs,
                               .c = at(to, block.row, block.column),
                               .stride_c = inputs,
                               .inputs = x.dtype(),
                               .output = to.dtype(),
                               .accumulate = mode == GradientMode::kAccumulate,
                               .streams = streams},
                              of_thread);
             });
}

void grouped_bias_backward(std::span<const Tensor> dbiases, const Tensor& dy, const Tensor& factors,
                           const GroupedRows& rows, GradientMode mode, const Stream&) {
  const std::int64_t columns = dy.size(1);
  const float* const of_rows = optional_data<float>(factors);
  visit_real(dy.dtype(), [&]<class T>(T) {
    const auto* const from = dy.data<T>();
    parallel_items(std::ssize(dbiases), [&](std::int64_t, std::int64_t i) {
      const auto matrix = static_cast<std::size_t>(i);
      const GroupRange range = range_of(rows, matrix);
      float* const to = dbiases[matrix].data<float>();
      if (mode == GradientMode::kOverwrite) std::fill_n(to, columns, 0.0f);
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        const float factor = of_rows != nullptr ? of_rows[row] : 1.0f;
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) to[c] += factor * load(from + row * columns + c);
      }
    });
  });
}

void grouped_dots(const Tensor& sums, const Tensor& x, const GroupedRows& rows,
                  std::span<const Tensor> vectors, const Stream&) {
  const std::int64_t columns = x.size(1);
  float* const to = sums.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    const auto* const from = x.data<T>();
    parallel_items(std::ssize(vectors), [&](std::int64_t, std::int64_t i) {
      const auto group = static_cast<std::size_t>(i);
      const GroupRange range = range_of(rows, group);
      const float* const vector = vectors[group].data<float>();
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < columns; ++c)
          sum += load(from + row * columns + c) * vector[c];
        to[row] = sum;
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
