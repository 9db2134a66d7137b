#pragma once

#include <cstddef>
#include <string_view>

#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

/// How elements of a dtype in a file become elements of a Tensor.
struct ElementConversion {
  /// Converts `count` elements; false if a value does not fit. Null: no such conversion.
  bool (*convert)(void* to, const void* from, std::size_t count) = nullptr;
  std::size_t from_bytes = 0;  // of one element in the file
};

ElementConversion find_conversion(std::string_view from, DType to);

}  // namespace hybrid_trainer
