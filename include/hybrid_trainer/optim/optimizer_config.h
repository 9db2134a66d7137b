#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Names that OptimizerConfig::name may hold.
const std::vector<std::string>& optimizer_names();

/// Which optimizer turns gradients into weight changes, and its settings. JSON group `optimizer`.
struct OptimizerConfig {
  std::string name = "adamw";
  double learning_rate = 1e-3;
  std::vector<double> betas{0.9, 0.99};
  double epsilon = 1e-8;
  double momentum = 0.95;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  std::int64_t state_bits = 32;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"name", self.name,
                "adamw, sgd, or muon (orthogonalised momentum for matrices, AdamW for the rest).",
                Range{}, optimizer_names()});
    visit(Field{"learning_rate", self.learning_rate,
                "Highest learning rate of the schedule; adamw and muon want the same size.",
                Range::at_least(0)});
    visit(Field{"betas", self.betas,
                "AdamW's two decay factors: of the mean and of the mean square of the gradients.",
                Range::fraction()});
    visit(Field{"epsilon", self.epsilon, "Added to AdamW's denominator.", Range::above(0)});
    visit(Field{"momentum", self.momentum, "Decay factor of the momentum of sgd and muon.",
                Range::fraction()});
    visit(Field{"weight_decay", self.weight_decay,
                "Share of a matrix, times the learning rate, that each step takes away.",
                Range::at_least(0)});
    visit(Field{"clip_norm", self.clip_norm,
                "Gradients with a longer global norm are scaled down to it; 0 never does.",
                Range::at_least(0)});
    visit(Field{"state_bits", self.state_bits,
                "Bits of each of AdamW's moments, 32 or 8: 8 takes a quarter of the memory, in "
                "blocks of 256 with a scale each; parameters below 4,096 elements and the momentum "
                "of muon's matrices keep 32.",
                Range::between(8, 32)});
  }

  /// Appends the problems that the fields' ranges cannot express, as "path.field: ...".
  void collect_problems(const std::string& path, std::vector<std::string>& problems) const;
};

}  // namespace hybrid_trainer
