#pragma once

// Kernels that sum each row of a matrix: one block of threads per row.

#include "kernels/cuda/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

constexpr unsigned int kRowThreads = 256;

/// What follows from one row of `columns` elements: a block of threads for each.
template <class Row>
__global__ void for_rows_kernel(Row row, std::int64_t columns) {
  const std::int64_t begin = blockIdx.x * columns;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += kRowThreads)
    sum += static_cast<double>(row.term(begin + i, i));
  sum = reduce_block(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) row.finish(blockIdx.x, sum);
}

/// Enqueues row.finish(row, sum of row.term(element, column) over the row) for each row.
template <class Row>
void for_rows(const Stream& stream, const char* name, const Row& row, std::int64_t rows,
              std::int64_t columns) {
  launch(stream, name, for_rows_kernel<Row>,
         Grid{.x = static_cast<unsigned int>(rows), .threads = kRowThreads}, row, columns);
}

}  // namespace hybrid_trainer::kernels::cuda
