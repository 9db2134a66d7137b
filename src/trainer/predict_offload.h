#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "src/step/training_step.h"

namespace hybrid_trainer {

/// What a Predict of forward passes has no use for, off the device until it is used again: the
/// optimizer state (predict_aware_memory), and the masters.
class PredictOffload {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// All must outlive it. `tell` receives one line where something stays on the device.
  PredictOffload(const HybridTrainerConfig& config, MemoryPlaces& places, TrainingStep& step,
                 Tell tell);
  /// Whether Predict moves masters and directions to the host.
  bool empties_device() const { return empties_device_; }

  /// Predict begins. What was rounded already, and came back for a checkpoint, stays: rounded again
  /// it would differ from the state of a run that did not save. Of several ranks none may keep what
  /// others round: throws Error.
  void move_state_out();
  /// After the compute copies are made. Their memory may be reused at once: work is enqueued in
  /// stream order.
  void move_masters_out();
  /// Another phase begins.
  void end_predict();

  /// Starts to bring the state from a slow medium into host memory.
  void begin_restore() { strategy_->begin_restore(); }
  /// Frees what was copied out; from its first use of the device on, a phase other than Predict has
  /// the state on its way back.
  void begin_return(Phase phase);
  /// The state is on the device. Blocks.
  void wait_until_restored();
  /// Whether the state is gone for good (drop_and_reinitialize), and its counters begin anew.
  bool is_dropped() const {
    return strategy_->restored() == Restored::kZeros &&
           strategy_->whereabouts() != Whereabouts::kResident;
  }
  const OffloadUse& use() const { return strategy_->use(); }

  /// Brings back what a checkpoint saves. release_after_save offloads it again, unless its restore
  /// had begun or it was rounded.
  void prepare_save(State& state, Phase phase);
  void release_after_save();
  /// Brings the state back so that it can be loaded.
  void prepare_load(const State& state);

 private:
  TrainingStep& step_;
  MemoryPlaces& places_;
  const Tell tell_;
  std::unique_ptr<OffloadStrategy> strategy_;  // of the optimizer state
  const bool empties_device_;
  Whereabouts before_save_ = Whereabouts::kResident;
  bool is_rounded_ = false;  // the state, by this Predict's offload
};

}  // namespace hybrid_trainer
