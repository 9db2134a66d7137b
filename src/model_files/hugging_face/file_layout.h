#pragma once

#include <algorithm>
#include <cstddef>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// to (columns, rows) = from (rows, columns) transposed, f32 on the host.
inline void transpose(const Tensor& to, const Tensor& from) {
  constexpr std::int64_t kBlock = 32;  // blocks stay in the cache
  const std::int64_t rows = from.size(0), columns = from.size(1);
  const float* source = from.data<float>();
  float* target = to.data<float>();
  for (std::int64_t i = 0; i < rows; i += kBlock) {
    for (std::int64_t j = 0; j < columns; j += kBlock) {
      for (std::int64_t r = i; r < std::min(rows, i + kBlock); ++r) {
        for (std::int64_t c = j; c < std::min(columns, j + kBlock); ++c)
          target[c * rows + r] = source[r * columns + c];
      }
    }
  }
}

enum class RowsTo { kFile, kHere };

Stream host_stream();
/// A tensor of any values on the host.
Tensor host_tensor(const Shape& shape, DType dtype = DType::kF32);

/// Copies rows of so many bytes from one order to the other.
void copy_rows(void* to, const void* from, const RowGroups& order, std::size_t bytes, RowsTo side);
/// Rows in the other order, of a new tensor on the host; the same tensor where both are alike.
Tensor reordered(const Tensor& rows, const RowGroups& order, RowsTo side);

/// A part's values, f32 on the host, as its file has them.
Tensor in_file_layout(const Tensor& values, const FileTensor& part);
/// Takes a part's values as its file has them, in the file's shape.
void take_from_file(const Tensor& values, const Tensor& in_file, const FileTensor& part);
/// The same part with its outputs first, whichever way its file has it.
FileTensor outputs_first(FileTensor part);
/// Whether values here and in the file are the same numbers in the same order.
bool lies_alike(const FileTensor& part);

}  // namespace hybrid_trainer
