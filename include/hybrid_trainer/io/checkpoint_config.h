#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// When checkpoints are written and how many stay.
struct CheckpointConfig {
  std::int64_t every_steps = 500;
  std::int64_t keep = 3;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"every_steps", self.every_steps, "Steps between checkpoints; 0: only at the end.",
                Range::at_least(0)});
    visit(Field{"keep", self.keep, "Newest checkpoints that stay.", Range::at_least(1)});
  }
  bool operator==(const CheckpointConfig&) const = default;
};

}  // namespace hybrid_trainer
