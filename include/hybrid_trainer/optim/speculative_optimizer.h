#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

struct SpeculationSettings {
  std::int64_t lag = 1;                     // delay L in steps, 1 to 8
  std::string device_side = "anticipated";  // see make_update_predictor and SelectiveUpdates
  int worker_threads = 1;
  /// Bits per gradient element. 16 stores gradients, pending gradients and forecasts in bf16
  /// (nn/gradient_sink.h); pending gradients and forecasts are then stored with the exact state. 16
  /// requires lag 1 and device_side "anticipated" or "none".
  std::int64_t gradient_bits = 32;
  /// Number of elements of a weight that AdamW loads at a time if gradients are bf16.
  std::int64_t piece_elements = 1 << 20;
};

/// Inputs of one asynchronous step.
struct DelayedStep {
  /// False skips the update by this gradient. All pending updates then arrive, live weights become
  /// exact, and the delay restarts. With "selective", the window only omits the gradient.
  bool finite = true;
  float learning_rate = 0;
  float gradient_scale = 1;         // factor on the gradient, for clipping
  std::vector<float> future_rates;  // learning rates of the L updates after this one
};

/// The exact update that arrived during a step.
struct ArrivedUpdate {
  /// Relative error ‖predicted − exact‖/‖exact‖, over all weights, of the sum of the last L updates
  /// including this one. Absent for a skipped update and for the first L updates.
  std::optional<double> prediction_error;
  std::string worst_weight;  // weight with the largest error
  bool is_delayed = false;   // false: out of memory, so the update was synchronous
  std::int64_t lag = 0;      // number of updates that were pending while the step was computed
  double waited_seconds = 0;
};

struct SpeculationUse {
  std::int64_t waits = 0;
  double worker_seconds = 0, wait_seconds = 0;
};

/// An optimizer whose FP32 master weights and exact state are offloaded; the device stores only the
/// live weights that the layers read. A synchronous Optimizer step (lag 0) updates the master
/// weights in place and loads the new weights immediately.
///
/// With lag L, wait_for_delayed_step sends the gradients and returns. A worker computes the exact
/// update during the next steps and writes a forecast: the weights after the next L updates, as far
/// as they are known. Live weights combine this forecast with the gradients that are still in
/// flight. Step counts determine which update each step uses, so results do not depend on timing.
/// Source of weight prediction over a delay: Chen et al. 2018, "SpecTrain"; the rules are in
/// update_predictor.h.
class SpeculativeOptimizer : public Optimizer {
 public:
  /// Sets the lag to L from the next step on. `rates`: learning rates of the next L updates.
  virtual void begin_lag(const std::vector<float>& rates, const Stream& stream) = 0;
  virtual bool is_delayed() const = 0;
  /// Sends the current gradients as a pending update and composes live weights for the next step.
  /// Blocks only if the update L steps earlier has not arrived. Rethrows the worker's errors.
  virtual ArrivedUpdate wait_for_delayed_step(const DelayedStep& step, const Stream& stream) = 0;
  /// Waits for all pending updates and makes live weights exact, with lag 0. Blocks.
  virtual void wait_for_exact_weights(const Stream& stream) = 0;
  virtual SpeculationUse use() const = 0;

  /// Saves pending updates as "speculation.…". The tensors are views that stay valid until the next
  /// step. Call it after visit_state, which waits for the worker.
  virtual void save_delayed(State& state) const = 0;
  /// Restores the state. Load weights and optimizer state first.
  virtual void load_delayed(const State& state, const std::vector<float>& rates,
                            const Stream& stream) = 0;
};

/// Makes an optimizer and gives each parameter LiveWeight storage. Master weights and state are
/// stored in the pool of `home`, which must outlive the optimizer. Gradients and forecasts in
/// flight are stored in `host`, or in `home` if they are bf16. Throws ConfigError, OutOfMemory.
std::unique_ptr<SpeculativeOptimizer> make_speculative_optimizer(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
    const SpeculationSettings& settings, const Stream& device,
    const std::shared_ptr<MemoryPool>& host, const Stream& home);

}  // namespace hybrid_trainer
