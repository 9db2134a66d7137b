#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// What a network of series knows of its table.
struct SeriesConfig {
  std::int64_t channels = 0;
  std::string scale{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"channels", self.channels,
                "Columns of measurements; 0: as many as data.columns names.",
                Range::between(0, 65536)});
    visit(Field{"scale", self.scale,
                "Mean and deviation of each column, then of the target, such as 8/5.4,3/1, by "
                "which numbers are scaled. Empty takes those of the training rows, and the run "
                "keeps them."});
  }
};

}  // namespace hybrid_trainer
