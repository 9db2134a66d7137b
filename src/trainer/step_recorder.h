#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hybrid_trainer/memory/memory_monitor.h"
#include "hybrid_trainer/observability/step_record.h"
#include "hybrid_trainer/phases/phase_outcome.h"
#include "src/config/stretches.h"
#include "src/trainer/expert_watch.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

/// Makes the record of each step, and tells what is new in it.
class StepRecorder {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// All must outlive it. `tell` receives each line; `warn` those that ask for attention.
  StepRecorder(const HybridTrainerConfig& config, const Stretches& stretches,
               std::shared_ptr<MemoryPool> host_pool, ModelTrainable& trainable,
               Communicator* ranks, Tell tell, Tell warn);
  /// All that the record of step number `step` tells but its time. Its event takes the `warnings` so
  /// far, to which `warn` may add here. Figures are of all ranks, but in Predict steps whose ranks do
  /// not wait for each other, and for memory; a collective in the other steps.
  StepRecord record(std::int64_t step, const PhaseOutcome& outcome, const Batch& batch,
                    std::string& warnings);
  /// Tells of a step's phase, if it is another one than `before`, and of its event.
  void tell_outcome(std::int64_t step, Phase before, const PhaseOutcome& outcome) const;

 private:
  ExpertWatch::Total total_over_ranks(Phase phase) const;
  void add_preference(StepRecord& record, const ExpertWatch::Total& total);
  void watch_memory(StepRecord& record);
  void tell_stretch(StepRecord& record) const;

  const Stretches& stretches_;
  const std::shared_ptr<MemoryPool> host_pool_;
  ModelTrainable& trainable_;
  Communicator* const ranks_;
  const Tell tell_, warn_;
  const bool has_lag_, prefers_, predicts_without_waiting_;
  MemoryMonitor monitor_;
  ExpertWatch experts_;
  MemoryStatus told_status_ = MemoryStatus::kNormal;  // the worst that was told
  bool told_leak_ = false;
};

}  // namespace hybrid_trainer
