#pragma once

#include "phases/method.h"

namespace hybrid_trainer {

/// Local SGD: in Predict each rank trains on by itself. What it tells of a step is its own, and the
/// monitor judges none of them.
class LocalSgdMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);

  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override;
  void drain(PhaseOutcome& outcome) override;

 private:
  void tell_skipped(const LocalStep& step, PhaseOutcome& outcome);
};

}  // namespace hybrid_trainer
