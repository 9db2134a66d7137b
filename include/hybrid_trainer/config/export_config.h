#pragma once

#include <string>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// How `hybrid export` writes the run's model.
struct ExportConfig {
  std::string dtype = "auto";

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"dtype",
                self.dtype,
                "Precision of exported weights: fp32, bf16 or auto. auto is bf16 if all weights of "
                "the Hugging Face folder that the run began from are, else fp32, also for a folder "
                "in f16. A new run writes into its configuration what auto means.",
                Range{},
                {"auto", "fp32", "bf16"}});
  }
  bool operator==(const ExportConfig&) const = default;
};

}  // namespace hybrid_trainer
