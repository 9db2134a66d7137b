#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/method_support.h"
#include "src/step/training_step.h"

namespace hybrid_trainer {

/// What a method has pending in Predict beside the step: delayed updates, gradients of other ranks, or
/// exchanges of weights. Does nothing where the method has nothing pending.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  virtual MethodSupport support() { return {}; }
  /// The model has entered Predict.
  virtual void enter_predict() {}
  /// An update was made at once, by a gradient that was clipped by `scale`.
  virtual void observe_update(float /*scale*/) {}
  /// Ends what is pending without its updates, for weights and state that are about to be loaded.
  virtual void drop() {}
  /// Calls `use` while the exact weights are in place of predicted ones.
  virtual void with_exact(const std::function<void()>& use) { use(); }
  /// Where ranks have something pending: whether any had called this with true by the step that it is
  /// of, the same on all ranks. Else absent.
  virtual std::optional<bool> vote_to_stop(bool /*asks*/) { return {}; }
  virtual void save(State&) const {}
  /// Weights and optimizer state have been loaded; `of_predict` is that of Predict.
  virtual void load(const State&, const Precision& /*of_predict*/) {}
};

/// That of the configured method. `step` must outlive it; `tell` receives one line where updates
/// cannot be delayed. Throws OutOfMemory.
std::unique_ptr<PendingWork> make_pending_work(const HybridTrainerConfig& config,
                                               TrainingStep& step,
                                               std::function<void(const std::string&)> tell);

}  // namespace hybrid_trainer
