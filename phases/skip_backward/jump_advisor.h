#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"
#include "phases/skip_backward/jump.h"

namespace hybrid_trainer {

/// What the next prediction is made with.
struct JumpChoice {
  PredictionArm arm;
  double step_length = 1;  // of its first step, in predicted steps
};

/// How far a prediction goes, and how sure it is.
struct JumpPlan {
  std::int64_t steps = 1;
  double step_length = 1;
  double confidence = 0;
};

/// What the run has been charged so far, in Full steps.
struct RunCosts {
  double full_flops = 0;  // operations of a Full step
  double steps = 0;       // with the one under way
  double extra = 0;       // beyond a Full step for each of them
  double advice = 0;      // for advice, within `extra`
  bool pays = false;      // whether predictions are measured to be ahead of Full
};

/// Has a say in what a prediction is made with. The gate still decides whether there is one. By
/// default it says nothing. A new one is a class in phases/experiments/ and a row in
/// jump_advisor.cpp.
class JumpAdvisor {
 public:
  virtual ~JumpAdvisor() = default;
  /// Predictor and length of the next prediction; absent where they are chosen elsewhere.
  virtual std::optional<JumpChoice> choice() const { return {}; }
  /// The prediction that begins now, of at most the granted steps.
  virtual JumpPlan plan(const JumpPlan& granted) { return granted; }
  /// After each true update, with what it measured.
  virtual void see_update(const GradientMeasurement&, const RunCosts&) {}
  /// The prediction under way was decided on.
  virtual void see_jump(const Jump&) {}
  /// Why it chose what it did, or "".
  virtual std::string explanation() const { return ""; }
  /// Full steps that it is charged for what it computed since the last call; absent where it never
  /// computes.
  virtual std::optional<double> take_cost(double /*full_flops*/) { return {}; }
  /// The most that a plan of so many steps is charged.
  virtual double price_of(std::int64_t /*steps*/, double /*full_flops*/) const { return 0; }
  virtual void save(State&) const {}
  virtual void load(const State&) {}
};

/// Those that the config asks for.
std::vector<std::unique_ptr<JumpAdvisor>> make_jump_advisors(const PhaseConfig& config);

}  // namespace hybrid_trainer
