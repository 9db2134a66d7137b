#pragma once

#include <optional>
#include <string>

#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

/// How the parts of a network compute whose names match a pattern, such as "video.*".
struct PartSettings {
  std::string pattern;
  /// Share of its activations that backward computes again, 0 to 1; none: as the whole run says.
  std::optional<double> recompute{};
  /// Of its activations and products; none: as the phase says.
  std::optional<DType> dtype{};
};

}  // namespace hybrid_trainer
