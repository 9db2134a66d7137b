#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// to (columns, rows) = from (rows, columns) transposed, f32 on the host.
void transpose(const Tensor& to, const Tensor& from);

}  // namespace hybrid_trainer
