#pragma once

#include <cstdint>
#include <span>

namespace hybrid_trainer {

class OutputFile;

/// Writes a float32 matrix to a file in NumPy's format .npy, version 1.0, row by row. The number of
/// rows is set at the end.
class NpyWriter {
 public:
  /// Begins a matrix with rows of `columns` numbers. `file` is empty and outlives the writer.
  NpyWriter(OutputFile& file, std::int64_t columns);
  /// Appends rows, one after the other. Throws ShapeMismatch unless they are whole, IoError.
  void write(std::span<const float> rows);
  /// Sets the number of rows. Until then the file is a matrix without rows. Throws IoError.
  void finish();

 private:
  OutputFile& file_;
  const std::int64_t columns_;
  std::int64_t rows_ = 0;
};

}  // namespace hybrid_trainer
