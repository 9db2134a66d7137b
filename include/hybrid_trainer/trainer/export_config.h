#pragma once

#include <string>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// How `hybrid export` writes the run's model.
struct ExportConfig {
  std::string dtype = "auto";

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "dtype",
        self.dtype,
        "What exported weights are rounded to: fp32, bf16, or auto: bf16 where all weights of "
        "the Hugging Face folder are that the run began from, else fp32, of a folder in f16 "
        "too. A run that begins writes what auto means.",
        Range{},
        {"auto", "fp32", "bf16"}});
  }
  bool operator==(const ExportConfig&) const = default;
};

}  // namespace hybrid_trainer
