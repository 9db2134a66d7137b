#include "hybrid_trainer/nn/carried_keys.h"

#include <algorithm>

#include "hybrid_trainer/kernels/columns.h"

namespace hybrid_trainer {
namespace {

/// A block of each of B matrices, (B, any, any).
struct Block {
  const Tensor& of;
  std::int64_t row, column;
  kernels::Columns rows(std::int64_t sequence, std::int64_t count) const {
    return {of.rows(sequence, sequence + 1).as_rows().rows(row, row + count), column};
  }
};

using BlockKernel = decltype(kernels::copy_columns);

/// copy_columns or add_columns, for each of the matrices.
void for_blocks(BlockKernel& kernel, const Block& to, const Block& from, std::int64_t rows,
                std::int64_t columns, const Stream& stream) {
  if (rows == 0) return;
  for (std::int64_t i = 0; i < to.of.size(0); ++i)
    kernel(to.rows(i, rows), from.rows(i, rows), columns, stream);
}

Tensor empty_rows(const Tensor& like, std::int64_t time, std::int64_t columns,
                  const Stream& stream) {
  return Tensor::empty({like.size(0), time, columns}, like.dtype(), MemoryKind::kActivations,
                       stream);
}

}  // namespace

std::int64_t CarriedKeys::before(const Pass& pass) const {
  if (pass.carry == nullptr) return 0;
  const Tensor& rows = slot(pass).first.rows;
  return rows ? rows.size(1) : 0;
}

Tensor CarriedKeys::behind_zeros(const Tensor& x, const Pass& pass, const Stream& stream) const {
  const std::int64_t count = before(pass), time = x.size(1);
  if (count == 0) return x;
  Tensor all = empty_rows(x, count + time, x.size(2), stream);
  for (std::int64_t i = 0; i < x.size(0); ++i)
    fill_zero(all.rows(i, i + 1).as_rows().rows(0, count), stream);
  for_blocks(kernels::copy_columns, {all, count, 0}, {x, 0, 0}, time, x.size(2), stream);
  return all;
}

Tensor CarriedKeys::own(const Tensor& joined, const Pass& pass, const Stream& stream) const {
  const std::int64_t count = before(pass), time = joined.size(1) - count;
  if (count == 0) return joined;
  Tensor rows = empty_rows(joined, time, joined.size(2), stream);
  for_blocks(kernels::copy_columns, {rows, 0, 0}, {joined, count, 0}, time, joined.size(2), stream);
  return rows;
}

Tensor CarriedKeys::joined(const Tensor& qkv, const Pass& pass, const Stream& stream) const {
  const Tensor all = behind_zeros(qkv, pass, stream);
  if (const std::int64_t count = before(pass); count > 0)
    for_blocks(kernels::copy_columns, {all, 0, first_column()}, {slot(pass).first.rows, 0, 0},
               count, columns(), stream);
  if (pass.carry != nullptr && pass.carry->wants_last()) fill_last(all, pass, stream);
  return all;
}

void CarriedKeys::fill_last(const Tensor& joined, const Pass& pass, const Stream& stream) const {
  const std::int64_t time = joined.size(1), kept = std::min(heads_.window - 1, time);
  if (kept == 0) return;
  Tensor& rows = slot(pass).last.rows;
  rows = empty_rows(joined, kept, columns(), stream);
  for_blocks(kernels::copy_columns, {rows, 0, 0}, {joined, time - kept, first_column()}, kept,
             columns(), stream);
}

Pass CarriedKeys::joined(const Pass& pass, std::int64_t time, const Stream& stream) const {
  const std::int64_t count = before(pass);
  if (!pass.positions || count == 0) return pass;
  const std::int64_t begin = pass.carry->place().begin;
  const Tensor& all = pass.carry->place().positions;
  Pass joined = pass;
  joined.positions =
      Tensor::empty({all.size(0), count + time}, DType::kI32, MemoryKind::kActivations, stream);
  kernels::copy_columns({joined.positions, 0}, {all, begin - count}, count + time, stream);
  return joined;
}

std::int64_t CarriedKeys::positions_end(const Pass& pass, std::int64_t time) const {
  if (pass.carry != nullptr && pass.positions) return pass.carry->place().positions.size(1);
  return before(pass) + time;
}

Tensor CarriedKeys::backward(const Tensor& djoined, const Pass& pass, const Stream& stream) const {
  if (pass.carry == nullptr) return djoined;
  SegmentCarry::Slot& carried = slot(pass);
  if (const Tensor& drows = carried.dlast.rows; drows)
    for_blocks(kernels::add_columns, {djoined, djoined.size(1) - drows.size(1), first_column()},
               {drows, 0, 0}, drows.size(1), columns(), stream);
  const std::int64_t count = before(pass);
  if (count > 0) {
    carried.dfirst.rows = empty_rows(djoined, count, columns(), stream);
    for_blocks(kernels::copy_columns, {carried.dfirst.rows, 0, 0}, {djoined, 0, first_column()},
               count, columns(), stream);
  }
  return own(djoined, pass, stream);
}

}  // namespace hybrid_trainer
