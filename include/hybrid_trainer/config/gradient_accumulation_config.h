#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// How many micro-batches one optimizer step averages over. JSON group `gradient_accumulation`.
struct GradientAccumulationConfig {
  std::int64_t micro_batches = 1;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"micro_batches", self.micro_batches,
                "Micro-batches of data.batch_size sequences in one step. The step applies their "
                "mean gradient.",
                Range::between(1, 65536)});
  }

  static GradientAccumulationConfig conservative() { return {1}; }
  static GradientAccumulationConfig balanced() { return {2}; }
  static GradientAccumulationConfig aggressive() { return {4}; }
};

}  // namespace hybrid_trainer
