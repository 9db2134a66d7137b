#pragma once

#include <algorithm>
#include <cstdint>

namespace hybrid_trainer {

/// How many of a window's last tokens it keeps: all, or half a context where it outgrew that.
inline std::int64_t kept_window(std::int64_t tokens, std::int64_t context) {
  return tokens > context ? std::max<std::int64_t>(1, context / 2) : tokens;
}

}  // namespace hybrid_trainer
