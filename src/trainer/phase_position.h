#pragma once

#include <optional>

#include "hybrid_trainer/config/phase_precision.h"
#include "src/step/training_step.h"

namespace hybrid_trainer {

/// Which step of which phase a model is at: schedule, dropout and precision follow from it.
class PhasePosition {
 public:
  /// `step` must outlive it.
  PhasePosition(const HybridTrainerConfig& config, std::int64_t width, TrainingStep& step);
  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }
  /// The step computes in the phase's precision from now on. `records`: see TrainingStep.
  void compute(bool records);
  /// Steps done in all phases.
  void set_steps_done(std::int64_t steps);
  /// See Rollback.
  void rewind(std::int64_t steps);
  const PhasePrecision& precision() const { return precision_; }
  PhasePrecision& precision() { return precision_; }

 private:
  DType dtype() const;
  void go_to_step();

  TrainingStep& step_;
  PhasePrecision precision_;
  std::optional<DType> dtype_{};  // that the step computes in, once a phase was entered
  Phase phase_ = Phase::kWarmup;
  std::int64_t steps_done_ = 0, rewound_ = 0;
};

}  // namespace hybrid_trainer
