#pragma once

#include "phases/method.h"

namespace hybrid_trainer {

/// The asynchronous optimizer: Predict's steps are like Full's, but their exact updates arrive late.
/// Ends early where what was predicted of them is too far off.
class AsynchronousOptimizerMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);

  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override;
};

}  // namespace hybrid_trainer
