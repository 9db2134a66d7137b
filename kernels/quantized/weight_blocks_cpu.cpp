#include "hybrid_trainer/core/error.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/quantized/weight_blocks.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

template <class T>
void decode_row(T* to, const std::byte* from, std::int64_t columns, BlockFormat format) {
  if constexpr (std::is_same_v<T, float>) {
    decode_blocks(format, from, {to, static_cast<std::size_t>(columns)});
  } else {
    constexpr std::size_t kMax = 256;  // the largest block
    float values[kMax];
    const BlockSize size = block_size(format);
    for (std::int64_t at = 0; at < columns; at += size.numbers, from += size.bytes) {
      decode_blocks(format, from, {values, static_cast<std::size_t>(size.numbers)});
      for (std::int64_t i = 0; i < size.numbers; ++i) store(to + at + i, values[i]);
    }
  }
}

/// Writes rows of values. Row n is decoded from row row_of(n) of the blocks.
template <class RowOf>
void decode_rows(const Tensor& values, const BlockTensors& from, const RowOf& row_of) {
  const std::int64_t columns = values.size(1);
  const BlockSize size = block_size(from.format);
  const std::int64_t bytes = columns / size.numbers * size.bytes;
  const auto* const blocks = static_cast<const std::byte*>(from.bytes.raw());
  const BlockFormat format = from.format;
  visit_real(values.dtype(), [&]<class T>(T) {
    auto* const to = values.data<T>();
    for_each_row(values.size(0), columns, [=](std::int64_t n) {
      decode_row(to + n * columns, blocks + row_of(n) * bytes, columns, format);
    });
  });
}

}  // namespace

void dequantize_blocks(const Tensor& values, const BlockTensors& from, const Stream&) {
  decode_rows(values, from, [](std::int64_t row) { return row; });
}

void gather_block_rows(const Tensor& y, const Tensor& indices, const BlockTensors& from,
                       const Stream&) {
  const std::int32_t* const rows = indices.data<std::int32_t>();
  const BlockSize size = block_size(from.format);
  const std::int64_t count = from.bytes.elements() / (y.size(1) / size.numbers * size.bytes);
  for (std::int64_t n = 0; n < y.size(0); ++n) {
    if (rows[n] >= 0 && rows[n] < count) continue;
    throw DataError(concat("gather_block_rows: token ", n, " is ", rows[n], ", want 0 to ",
                           count - 1, "; was the data tokenized for another vocabulary?"));
  }
  decode_rows(y, from, [=](std::int64_t n) { return std::int64_t{rows[n]}; });
}

}  // namespace hybrid_trainer::kernels::cpu
