#pragma once

#include <cstddef>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

enum class RowsTo { kFile, kHere };

Stream host_stream();

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
