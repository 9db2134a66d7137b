#pragma once

#include "phases/method.h"

namespace hybrid_trainer {

/// Asynchronous gradients: a step of Predict goes on with this rank's gradient alone; that of all ranks
/// is judged, and makes its update, when it arrives. The loss of a step is that of the step whose
/// gradient arrived in it, of all ranks; in the first ones, where none did, that of its own.
class AsynchronousGradientsMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);

  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override;
  void drain(PhaseOutcome& outcome) override;
};

}  // namespace hybrid_trainer
