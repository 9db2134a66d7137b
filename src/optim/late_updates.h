#pragma once

#include <deque>

#include "hybrid_trainer/core/background_worker.h"
#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/optim/exact_weights.h"

namespace hybrid_trainer {

/// The two sides of a SpeculativeOptimizer: exact weights and state with the worker, and what is in
/// flight. Steps since the lag began are counted from 0; gradient k and composition k end step k.
class LateUpdates {
 public:
  LateUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
              const SpeculationSettings& settings, const Stream& device,
              const std::shared_ptr<MemoryPool>& host, const Stream& home);
  virtual ~LateUpdates() = default;

  ExactWeights& exact() { return exact_; }
  /// The exact update of a parameter at lag 0.
  void update_now(std::size_t index, float learning_rate, float gradient_scale,
                  const Stream& stream);
  void begin(const std::vector<float>& rates, const Stream& stream);
  bool is_late() const { return is_late_; }
  ArrivedUpdate wait_for_step(const LateStep& step, const Stream& stream);
  virtual void wait_for_exact_weights(const Stream& stream);
  virtual void wait_until_gradients_are_sent() {}
  void wait_until_idle() { worker_.wait_until_idle(); }
  SpeculationUse use() const;
  virtual void save(State& state) const;
  virtual void load(const State& state, const std::vector<float>& rates, const Stream& stream);

 protected:
  /// A gradient in flight: what its update is made with.
  struct Flying {
    bool finite;
    float learning_rate, scale;
  };
  struct Arrived {
    std::optional<double> error;
    std::string worst_weight;
  };
  // What composition step_ waits for, the composition, and what the worker is then given.
  virtual double wait_for_forecast() = 0;
  virtual void compose(const Stream& stream) = 0;
  virtual void submit_update(const LateStep& step) = 0;
  virtual void allocate(const Stream& stream);
  virtual void free_buffers();
  virtual void send(const LateStep& step, const Stream& stream);
  /// Whether a step without an update lets all updates arrive and begins the lag anew, on exact
  /// weights: forecasts were made as if each step had one.
  virtual bool starts_anew_without_an_update() const { return true; }
  /// The gradient that its update at lag 0 takes, f32 on the host.
  virtual Tensor gradient_now(const ExactWeight& weight, const Stream& stream);
  /// For the first L compositions, where the lag begins.
  virtual void submit_first_forecasts(const std::vector<float>& rates) = 0;
  /// The newest, where it goes on.
  virtual void submit_last_forecast(const std::vector<float>& rates) = 0;
  static bool is_saved(const State& state);

  std::size_t place(std::int64_t step) const { return static_cast<std::size_t>(step % lag_); }
  /// Of a step, also of the one under way, on the device; undefined where there is none.
  Tensor gradient_here(const ExactWeight& weight, std::int64_t step, const Flying& one) const;

  const std::int64_t lag_;
  ExactWeights exact_;
  bool is_late_ = false;
  std::int64_t step_ = 0;         // of the composition to come
  std::deque<Flying> flying_;     // the last L, oldest first
  std::vector<Arrived> arrived_;  // by step
  Event sent_;

 private:
  void start(const std::vector<float>& rates);
  void bring_exact_weights(const Stream& stream);

  SpeculationUse use_;

 protected:
  BackgroundWorker worker_;  // stops before the rest goes
};

}  // namespace hybrid_trainer
