#pragma once

#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

/// The control: Predict runs, and no weight moves.
class ZeroPredictor final : public Predictor {
 public:
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kChangesNothing; }
  void write_directions(Trainable&, const std::vector<Tensor>&) override {}
  void follow(Trainable&, const std::vector<Tensor>&, double) override {}
  void save(State&) const override {}
  void load(const State&, Trainable&) override {}
};

}  // namespace hybrid_trainer
