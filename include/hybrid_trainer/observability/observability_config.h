#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Outputs of a run in addition to metrics.jsonl, summary and report. JSON group `observability`.
struct ObservabilityConfig {
  bool tensorboard = false;
  std::int64_t answers = 3;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"tensorboard", self.tensorboard,
                "Also write the run's metrics, decisions and configuration to RUN/tensorboard/, "
                "for TensorBoard and programs that read its files. When a run resumes or rolls "
                "back, the file is rewritten, so that no step appears twice."});
    visit(
        Field{"answers", self.answers,
              "Number of held-out prompts that the model answers before and after fine-tuning; 0 "
              "disables it. The answers are on the console, in the report and in RUN/answers.json, "
              "and do not affect training.",
              Range::at_least(0)}
            .unless("data.layout", {"windows"}, "it applies only to examples (`hybrid finetune`)"));
  }
  bool operator==(const ObservabilityConfig&) const = default;
};

}  // namespace hybrid_trainer
