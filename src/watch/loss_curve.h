#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/observability/curves.h"

namespace hybrid_trainer {

/// A run's curve over columns, and the range that it is drawn in.
struct LossCurve {
  std::vector<std::optional<double>> values;  // means of the points that fall into each column
  double low = 0, high = 1;
  std::int64_t first = 0, last = 0;  // steps

  /// The column, of `columns`, that a step falls into.
  std::size_t column(std::int64_t step, std::size_t columns) const;
};

LossCurve loss_curve(const Curves& curves, std::size_t columns);

/// A curve of so many characters, "▇▅▃▂▁".
std::string sparkline(const Curves& curves, std::size_t columns);

}  // namespace hybrid_trainer
