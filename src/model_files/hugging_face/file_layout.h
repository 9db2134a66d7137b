#pragma once

#include <algorithm>
#include <cstddef>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Transposes `from` (rows, columns) to `to` (columns, rows), f32 on the host.
inline void transpose(const Tensor& to, const Tensor& from) {
  constexpr std::int64_t kBlock = 32;  // a block fits in the cache
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

enum class TargetOrder { kFile, kHere };

Stream host_stream();
Tensor host_tensor(const Shape& shape, DType dtype = DType::kF32);

/// Copies rows of `bytes` bytes between the model's and the file's row order.
void copy_rows(void* to, const void* from, const RowGroups& order, std::size_t bytes,
               TargetOrder side);
/// Returns a new tensor on the host with reordered rows, or `rows` if the order is unchanged.
Tensor reordered(const Tensor& rows, const RowGroups& order, TargetOrder side);

/// Returns a part's values, f32 on the host, in the layout of its file.
Tensor in_file_layout(const Tensor& values, const FileTensor& part);
/// Sets a part's values from `in_file`, which has the layout and shape of the file.
void take_from_file(const Tensor& values, const Tensor& in_file, const FileTensor& part);
/// Returns the part's description as if it were stored with its outputs first.
FileTensor outputs_first(FileTensor part);
bool has_same_order(const FileTensor& part);

}  // namespace hybrid_trainer
