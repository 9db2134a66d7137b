#pragma once

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Writes the rows of a table (positions, count) to columns [first, first + count) of `rows`, (B, T,
/// any): row t to token t of each sequence, or where `positions`, (B, T) i32, says. Throws Error where
/// the table is shorter than T.
void write_position_rows(const Tensor& rows, std::int64_t first, const Parameter& table,
                         const Tensor& positions, const Stream& stream);
/// Adds the gradient of those columns of drows to that of the table.
void add_position_gradient(Parameter& table, const Tensor& drows, std::int64_t first,
                           const Tensor& positions, const Stream& stream);

}  // namespace hybrid_trainer
