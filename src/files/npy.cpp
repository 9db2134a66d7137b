#include "src/files/npy.h"

#include <bit>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

namespace {

static_assert(std::endian::native == std::endian::little);  // '<f4'

std::string npy_header(std::int64_t rows, std::int64_t columns) {
  constexpr std::size_t kBytes = 128, kPrefix = 10;
  const std::string prefix("\x93NUMPY\x01\x00\x76\x00", kPrefix);  // 118 bytes of text
  static_assert(kBytes - kPrefix == 0x76);
  std::string text =
      concat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", columns, "), }");
  text.resize(kBytes - kPrefix - 1, ' ');
  return prefix + text + '\n';
}

}  // namespace

NpyWriter::NpyWriter(OutputFile& file, std::int64_t columns) : file_(file), columns_(columns) {
  if (columns < 1) throw ShapeMismatch(concat("got a matrix of ", columns, " columns"));
  file_.write(npy_header(0, columns_));
}

void NpyWriter::write(std::span<const float> rows) {
  const auto numbers = static_cast<std::int64_t>(rows.size());
  if (numbers % columns_ != 0)
    throw ShapeMismatch(concat("got ", numbers, " numbers, want rows of ", columns_));
  file_.write(rows.data(), rows.size_bytes());
  rows_ += numbers / columns_;
}

void NpyWriter::finish() {
  const std::string header = npy_header(rows_, columns_);
  file_.write_at_start(header.data(), header.size());
}

}  // namespace hybrid_trainer
