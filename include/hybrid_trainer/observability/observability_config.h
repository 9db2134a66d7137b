#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// What a run writes about itself beside metrics.jsonl, summary and report. JSON group
/// `observability`.
struct ObservabilityConfig {
  bool tensorboard = false;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(
        Field{"tensorboard", self.tensorboard,
              "Write the run's numbers, decisions and configuration to RUN/tensorboard/ as well, "
              "for TensorBoard and programs that read its files. When a run resumes or goes back, "
              "the file is written anew, so no step appears twice."});
  }
  bool operator==(const ObservabilityConfig&) const = default;
};

}  // namespace hybrid_trainer
