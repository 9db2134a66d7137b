#pragma once

#include "src/trainer/pending_work.h"

namespace hybrid_trainer {

/// Delayed updates by a SpeculativeOptimizer, clipped and at the schedule's rates.
class AsynchronousOptimizer final : public PendingWork, public DelayedOptimizer {
 public:
  AsynchronousOptimizer(TrainingStep& step, std::function<void(const std::string&)> tell)
      : step_(step), tell_(std::move(tell)) {}
  DelayedUpdate wait_for_update(bool finite) override;
  void wait_for_exact_weights() override;

  MethodSupport support() override { return {.optimizer = this}; }
  /// Updates stay in step where there is no room for pending ones.
  void enter_predict() override;
  void drop() override { wait_for_exact_weights(); }
  void save(State& state) const override;
  void load(const State& state, const Precision& of_predict) override;

 private:
  SpeculativeOptimizer& optimizer() const { return *step_.speculation(); }
  TrainingStep& step_;
  std::function<void(const std::string&)> tell_;
};

}  // namespace hybrid_trainer
