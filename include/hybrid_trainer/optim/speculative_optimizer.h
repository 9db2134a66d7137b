#pragma once

#include <memory>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

struct SpeculationSettings {
  std::int64_t lag = 1;                     // L, 1 to 8
  std::string device_side = "anticipated";  // see make_update_predictor and SelectiveUpdates
  int worker_threads = 1;
  /// 16: gradients are given in bf16 (nn/gradient_sink.h), and pending data between the two
  /// sides is in bf16 and lies with the exact state. Then L is 1 and device_side anticipated or
  /// none.
  std::int64_t gradient_bits = 32;
  /// With gradients in bf16: most elements of AdamW's weights that are loaded at once.
  std::int64_t piece_elements = 1 << 20;
};

/// Inputs of one asynchronous step.
struct LateStep {
  /// Else there is no update by this gradient: all others arrive, live weights are the exact ones,
  /// and the lag begins anew. With "selective" it is left out of its window.
  bool finite = true;
  float learning_rate = 0;
  float gradient_scale = 1;          // clipping
  std::vector<float> rates_to_come;  // of the L updates after this one
};

/// The exact update that arrived in a step.
struct ArrivedUpdate {
  /// ‖predicted − exact‖/‖exact‖ of the L updates that ended with the one that arrived, over all
  /// weights; absent for a skipped one and for the first L.
  std::optional<double> prediction_error;
  std::string worst_weight;  // where it was largest
  bool is_late = false;      // else memory had no room, and the update was made at once
  std::int64_t lag = 0;      // updates pending while the step was computed
  double waited_seconds = 0;
};

struct SpeculationUse {
  std::int64_t waits = 0;
  double worker_seconds = 0, wait_seconds = 0;
};

/// An optimizer whose masters and exact state are not on the device, which holds only what products
/// read. An Optimizer's step (lag 0) updates them where they are and brings the new weights at once.
///
/// With lag L, wait_for_late_step sends the gradients and returns; a worker makes the exact update while the
/// next steps are computed, and writes a forecast: weights that contain what is known of the L
/// updates to come. Live weights are composed of the forecast made after the update of L steps before
/// and the gradients in flight since. Which update meets which step is fixed by counting, never by
/// what happens to be ready. Source of the idea that weights are predicted over a delay: Chen et al.
/// 2018, "SpecTrain"; the rules are in update_predictor.h.
class SpeculativeOptimizer : public Optimizer {
 public:
  /// From the next step on, the lag is L; `rates`: of the next L updates. Does nothing where it is L
  /// already.
  virtual void begin_lag(const std::vector<float>& rates, const Stream& stream) = 0;
  virtual bool is_late() const = 0;
  /// Sends the gradients of the step just computed as a pending update; live weights are composed
  /// for the next step. Blocks only where the update of L steps before has not arrived. Throws what
  /// the worker met.
  virtual ArrivedUpdate wait_for_late_step(const LateStep& step, const Stream& stream) = 0;
  /// All updates have arrived, and live weights are the exact ones, lag 0. Blocks.
  virtual void wait_for_exact_weights(const Stream& stream) = 0;
  virtual SpeculationUse use() const = 0;

  /// Saves pending updates as "speculation.…": views that stay valid until the next step. After
  /// visit_state, which waits for the worker.
  virtual void save_late(State& state) const = 0;
  /// Continues where save_late stopped; masters and state have been loaded. `rates` as in begin_lag.
  virtual void load_late(const State& state, const std::vector<float>& rates,
                         const Stream& stream) = 0;
};

/// Gives each parameter LiveWeight storage, with masters in `home`, where the state lies too;
/// gradients and forecasts on their way are in `host`, or in bf16 in `home`, which must outlive it.
/// Throws ConfigError, OutOfMemory.
std::unique_ptr<SpeculativeOptimizer> make_speculative_optimizer(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
    const SpeculationSettings& settings, const Stream& device,
    const std::shared_ptr<MemoryPool>& host, const Stream& home);

}  // namespace hybrid_trainer
