#pragma once

#include <cstdint>
#include <span>

namespace hybrid_trainer {

class OutputFile;

/// Writes a float32 matrix in NumPy's format .npy, version 1.0, row by row.
class NpyWriter {
 public:
  /// Begins a matrix with rows of `columns` numbers. `file` is empty and must outlive the writer.
  NpyWriter(OutputFile& file, std::int64_t columns);
  /// Appends rows. Throws ShapeMismatch if the last one is incomplete, and IoError.
  void write(std::span<const float> rows);
  /// Writes the number of rows. Until then, the file is a matrix without rows. Throws IoError.
  void finish();

 private:
  OutputFile& file_;
  const std::int64_t columns_;
  std::int64_t rows_ = 0;
};

}  // namespace hybrid_trainer
