#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

const std::vector<std::string>& precision_names();  // "fp32", "bf16", "auto"

/// Precision of activations and products in each phase; weights keep their fp32 master and sums are
/// fp32 in all of them. "auto" is bf16 where that is faster (automatic_precision), else fp32; in
/// Correct, which judges a jump and is a few steps only, fp32 is the default.
/// JSON group `mixed_precision`.
struct MixedPrecisionConfig {
  std::string warmup = "auto";
  std::string full = "auto";
  std::string predict = "auto";
  std::string correct = "fp32";

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"warmup", self.warmup,
                "Precision in Warmup: fp32, bf16 or auto. auto is bf16 where it is faster.",
                Range{}, precision_names()});
    visit(Field{"full", self.full, "Precision in Full.", Range{}, precision_names()});
    visit(Field{"predict", self.predict, "Precision in Predict.", Range{}, precision_names()});
    visit(Field{"correct", self.correct, "Precision in Correct.", Range{}, precision_names()});
  }

  static MixedPrecisionConfig conservative() { return {"fp32", "fp32", "fp32", "fp32"}; }
  static MixedPrecisionConfig balanced() { return {}; }
  static MixedPrecisionConfig aggressive() { return {"auto", "auto", "auto", "auto"}; }
  const std::string& of(Phase phase) const;
};

}  // namespace hybrid_trainer
