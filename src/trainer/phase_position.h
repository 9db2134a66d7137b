#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "src/step/memory_retry.h"
#include "src/step/training_step.h"

namespace hybrid_trainer {

/// How many micro-batches memory wants in each phase: at first the config's, twice as many from each
/// time on that memory was too small in that phase.
class PhaseMicroBatches {
 public:
  /// `step`, which has those of the phase entered last, must outlive it.
  PhaseMicroBatches(const HybridTrainerConfig& config, MicroBatches& step);
  /// The step has those of this phase from now on.
  void enter(Phase phase);
  /// Saves them. Where a rank has halved its own alone, it goes on as a resumed run does, which does
  /// not know.
  void save(State& state);
  /// Loads a checkpoint's, so that bits do not depend on when a run was stopped. Where the budget has
  /// grown since, each phase tries the config's again, and `tell` receives one line; a number that
  /// was found without a budget stays, as what other programs take of the memory decides nothing.
  void load(const State& state, const std::function<void(const std::string&)>& tell);

 private:
  const std::int64_t of_config_;
  const std::size_t budget_bytes_;  // of the device; 0: none
  MicroBatches& step_;
  Phase phase_ = Phase::kWarmup;
  std::array<std::int64_t, kPhases> counts_{};  // by phase, but for the one entered last
};

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
  Precision wanted() const;
  void go_to_step();

  TrainingStep& step_;
  PhasePrecision precision_;
  const Device device_;
  std::optional<Precision> chosen_{};  // that the step computes in, once a phase was entered
  Phase phase_ = Phase::kWarmup;
  std::int64_t steps_done_ = 0, rewound_ = 0;
};

}  // namespace hybrid_trainer
