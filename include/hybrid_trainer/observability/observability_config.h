#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Optional outputs of a run, in addition to metrics.jsonl, summary and report. JSON group
/// `observability`.
struct ObservabilityConfig {
  bool tensorboard = false;
  std::int64_t answers = 3;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(
        Field{"tensorboard", self.tensorboard,
              "Write the run's numbers, decisions and configuration to RUN/tensorboard/ as well, "
              "for TensorBoard and programs that read its files. When a run resumes or goes back, "
              "the file is written anew, so no step appears twice."});
    visit(Field{"answers", self.answers,
                "Prompts of held-out examples that the model answers before a fine-tune and after "
                "it, on the console, in the report and in RUN/answers.json. 0: none. Changes "
                "nothing that is trained.",
                Range::at_least(0)}
              .unless("data.layout", {"windows"}, "it is for examples (`hybrid finetune`)"));
  }
  bool operator==(const ObservabilityConfig&) const = default;
};

}  // namespace hybrid_trainer
