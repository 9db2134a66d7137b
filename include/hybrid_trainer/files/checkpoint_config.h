#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

inline constexpr const char* kNoClock =
    "the results of this run depend on which steps are saved (a divergence action is roll_back, or "
    "phases.method is asynchronous_gradients or local_sgd), and must not depend on the clock";

/// When checkpoints are written and how many are kept.
struct CheckpointConfig {
  std::int64_t every_steps = 500;
  double every_minutes = 10;
  std::int64_t every_epochs = 1;
  std::int64_t keep = 3;
  std::int64_t keep_best = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"every_steps", self.every_steps,
                "Steps between checkpoints; 0 saves none by steps. A run that ends or is stopped "
                "always saves one.",
                Range::at_least(0)}
              .essential(Question::kLength));
    visit(Field{"every_minutes", self.every_minutes,
                "Minutes between checkpoints; 0 saves none by time. It limits the lost work if "
                "steps are slow, and does not change results. It is ignored if results depend on "
                "which steps are saved: if a divergence action is roll_back, or if phases.method "
                "is asynchronous_gradients or local_sgd.",
                Range::at_least(0)}
              .unless("phases.method", {"asynchronous_gradients", "local_sgd"}, kNoClock)
              .unless("divergence.on_caution", {"roll_back"}, kNoClock)
              .unless("divergence.on_warning", {"roll_back"}, kNoClock)
              .unless("divergence.on_critical", {"roll_back"}, kNoClock));
    visit(Field{"every_epochs", self.every_epochs,
                "Epochs between checkpoints of `hybrid finetune`, saved at the end of an epoch; 0 "
                "saves none by epochs.",
                Range::at_least(0)}
              .needs_any({{KeyTest{"data.layout", KeyTest::Kind::kIsOneOf, {"packed", "apart"}},
                           KeyTest{"model.labels", KeyTest::Kind::kIsNoneOf, {"[]"}}},
                          "it applies only to examples (`hybrid finetune`)"}));
    visit(Field{"keep", self.keep, "Number of newest checkpoints to keep.", Range::at_least(1)});
    visit(
        Field{"keep_best", self.keep_best,
              "Number of checkpoints with the lowest validation losses to keep in addition to the "
              "newest ones. They are saved when they are evaluated. checkpoints/best names the one "
              "with the lowest loss; eval, sample and export read it with --checkpoint best.",
              Range::between(0, 100)}
            .unless("training.evaluate_every_steps", {"0"},
                    "the run is evaluated only at its end, and its last checkpoint is always "
                    "kept; set training.evaluate_every_steps"));
  }
  bool operator==(const CheckpointConfig&) const = default;
};

}  // namespace hybrid_trainer
