#pragma once

#include <concepts>
#include <limits>
#include <string_view>
#include <type_traits>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

/// Returns whether an integer type can represent the number after truncation of its fraction; false
/// for NaN.
template <std::integral To, class From>
constexpr bool holds_number(From value) {
  if constexpr (std::is_floating_point_v<From>) {
    constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    return value >= static_cast<From>(std::numeric_limits<To>::min()) && value < kEnd;
  } else {
    return std::in_range<To>(value);
  }
}

/// Converts an external number or an enumerator to a narrower integer type; file readers call it in
/// place of static_cast. Throws DataError naming `what` if the type cannot represent the number.
template <std::integral To, class From>
constexpr To narrow(From value, std::string_view what = "a number") {
  if constexpr (std::is_enum_v<From>) {
    return narrow<To>(static_cast<std::underlying_type_t<From>>(value), what);
  } else {
    if (!holds_number<To>(value))
      throw DataError(concat(what, " is ", value, "; want ", +std::numeric_limits<To>::min(),
                             " to ", +std::numeric_limits<To>::max()));
    return static_cast<To>(value);
  }
}

}  // namespace hybrid_trainer
