#pragma once

#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/routed_experts.h"

namespace hybrid_trainer {

/// The routers as they were when Predict began, by which its forward passes count the tokens that the
/// change of the weights sends elsewhere.
class RouterCopies {
 public:
  /// Both must outlive it.
  RouterCopies(LossModel& model, const Stream& stream) : model_(model), stream_(stream) {}
  /// Predict begins, or goes on where load found copies.
  void take();
  void drop();
  void save(State& state) const;
  void load(const State& state);

 private:
  std::vector<RoutedExperts*> all() const;
  LossModel& model_;
  const Stream& stream_;
};

}  // namespace hybrid_trainer
