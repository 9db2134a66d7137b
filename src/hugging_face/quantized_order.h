#pragma once

#include <string>

#include "hybrid_trainer/hugging_face/file_layout.h"
#include "hybrid_trainer/memory/quantized_weight.h"

namespace hybrid_trainer {

/// Codes of a matrix with its rows in the other order, in the pool of `home`; they stand for the
/// same numbers. 4-bit codes then have one f32 magnitude a block. `name` is for messages. Throws
/// DataError for 4-bit codes where a block spans two rows.
QuantizedRows reordered(const QuantizedRows& from, std::int64_t columns, const RowGroups& order,
                        RowsTo side, const std::string& name, const Stream& home);

}  // namespace hybrid_trainer
