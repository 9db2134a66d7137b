#pragma once

#include "src/optim/exact_weights.h"

namespace hybrid_trainer {

/// Base class of asynchronous optimizers: exact weights and state, which a worker updates, and the
/// data in flight. Steps count from 0 when the lag begins. At the end of step k, gradient k is sent
/// to the worker, and live weights are composed for the next step (composition k).
class DelayedUpdates : public SpeculativeOptimizer {
 public:
  explicit DelayedUpdates(const SpeculationSetup& setup);

  void begin_step(const Stream& stream) override;
  std::size_t weights() const override { return weights_; }
  /// Makes a synchronous update, at lag 0.
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override;
  void end_step(const Stream&) override { exact_.end_step(); }
  /// Always throws Error.
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  /// Waits for the worker first.
  void visit_state(const StateVisitor& visit) override;
  void set_steps_taken(std::int64_t steps) override;

  void begin_lag(const std::vector<float>& rates, const Stream& stream) override;
  bool is_delayed() const override { return is_delayed_; }
  ArrivedUpdate wait_for_delayed_step(const DelayedStep& step, const Stream& stream) override;
  void wait_for_exact_weights(const Stream& stream) override;
  SpeculationUse use() const override;
  void save_delayed(State& state) const override;
  void load_delayed(const State& state, const std::vector<float>& rates,
                    const Stream& stream) override;

 protected:
  /// Settings of the update by one gradient in flight.
  struct PendingUpdate {
    bool finite;
    float learning_rate, scale;
  };
  struct Arrived {
    std::optional<double> error;
    std::string worst_weight;
  };
  // Operations of a step. wait_for_forecast waits for the forecast that composition step_ needs,
  // compose makes the live weights, and submit_update submits the worker's next job.
  virtual double wait_for_forecast() = 0;
  virtual void compose(const Stream& stream) = 0;
  virtual void submit_update(const DelayedStep& step) = 0;
  virtual void allocate(const Stream& stream);
  virtual void free_buffers();
  virtual void send(const DelayedStep& step, const Stream& stream);
  /// Returns whether a step without an update waits for all pending updates and restarts the lag on
  /// exact weights. This is necessary if forecasts assume that every step has an update.
  virtual bool restarts_without_update() const { return true; }
  /// Returns the gradient for a synchronous update, f32 in host memory.
  virtual Tensor current_gradient(const ExactWeight& weight, const Stream& stream);
  /// Submits jobs for the forecasts of the first L compositions after the lag begins.
  virtual void submit_first_forecasts(const std::vector<float>& rates) = 0;
  /// Submits a job for the newest forecast. Called on resume.
  virtual void submit_last_forecast(const std::vector<float>& rates) = 0;
  static bool is_saved(const State& state);

  std::size_t place(std::int64_t step) const { return static_cast<std::size_t>(step % lag_); }
  /// Returns the gradient of a pending or the current step, on the device, or an undefined tensor
  /// if the step has no gradient.
  Tensor gradient_on_device(const ExactWeight& weight, std::int64_t step,
                            const PendingUpdate& one) const;

  const std::int64_t lag_;
  const std::size_t weights_;
  ExactWeights exact_;
  bool is_delayed_ = false;
  std::int64_t step_ = 0;              // number of the next composition
  std::deque<PendingUpdate> pending_;  // the last L updates, oldest first
  std::vector<Arrived> arrived_;       // indexed by step
  Event sent_;

 private:
  void start(const std::vector<float>& rates);
  void copy_exact_weights(const Stream& stream);

  SpeculationUse use_;

 protected:
  BackgroundWorker worker_;  // declared last: stops before other members are destroyed
};

/// Accumulated squared prediction error, and the weight with the largest error.
struct PredictionMiss {
  double missed = 0, moved = 0, worst = 0;
  std::string worst_weight{};
  /// Adds the error of a predicted change. Overwrites `predicted` and `before`. Blocks.
  void wait_and_add(const ExactWeight& weight, const Tensor& predicted, const Tensor& before,
                    const Tensor& after, const Stream& stream);
  /// Returns ‖predicted − exact‖/‖exact‖.
  double error() const;
};

/// Delayed updates with prediction. Composition k uses the forecast made after the update by
/// gradient k − L, or from the start of the lag. L forecasts are stored, at index k mod L.
class ForecastUpdates : public DelayedUpdates {
 public:
  explicit ForecastUpdates(const SpeculationSetup& setup);
  ~ForecastUpdates() override { worker_.stop(); }
  void wait_for_exact_weights(const Stream& stream) override;
  void save_delayed(State& state) const override;
  void load_delayed(const State& state, const std::vector<float>& rates,
                    const Stream& stream) override;

 protected:
  void compose(const Stream& stream) override;
  void allocate(const Stream& stream) override;
  void free_buffers() override;
  virtual void write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                              const LoadedWeight& here);
  /// Makes the exact update of `step`, measures its prediction error, and writes forecast step + L.
  virtual void update_weight_delayed(ExactWeight& weight, const LoadedWeight& here,
                                     std::int64_t step, const DelayedStep& given,
                                     const std::deque<PendingUpdate>& pending,
                                     PredictionMiss& miss);
  std::vector<float> rates_of(const ExactWeight& weight, std::span<const float> rates) const;
  /// Returns the state of a loaded weight after `steps` updates, the input of a forecast.
  static ExactWeightState state_of(const ExactWeight& weight, const LoadedWeight& here,
                                   std::int64_t steps);
  UpdatePredictor& on_host(const ExactWeight& weight) { return *groups_[weight.group].on_host; }
  UpdatePredictor& on_device(const ExactWeight& weight) { return *groups_[weight.group].on_device; }

 private:
  struct Group {
    std::unique_ptr<UpdatePredictor> on_device, on_host;
  };
  void add_groups(const OptimizerConfig& config, const std::string& device_side);
  double wait_for_forecast() override;
  void submit_update(const DelayedStep& step) override;
  void submit_first_forecasts(const std::vector<float>& rates) override;
  void submit_last_forecast(const std::vector<float>& rates) override;
  void submit_forecast(std::size_t at, std::vector<float> rates);
  void update_delayed(std::int64_t step, const DelayedStep& given,
                      const std::deque<PendingUpdate>& pending);
  /// Returns the gradients of pending updates up to step `last` that the forecast does not include.
  std::vector<kernels::GradientInFlight> in_flight(const ExactWeight& weight, std::int64_t last,
                                                   const std::deque<PendingUpdate>& pending,
                                                   bool on_device) const;

  std::vector<Group> groups_;
  std::int64_t first_job_ = 0;  // job of the forecast for composition 0
};

/// Updates delayed by one step, with gradients and forecasts in flight in bf16, stored with the
/// exact state. Rounding to bf16 is often larger than an update, so the prediction error is
/// measured with a second, unrounded forecast. With many weights, each step measures an eighth of
/// them.
class RoundedUpdates final : public ForecastUpdates {
 public:
  explicit RoundedUpdates(const SpeculationSetup& setup);
  ~RoundedUpdates() override { worker_.stop(); }
  void wait_until_gradients_are_sent() override { gradients_.finish_writes(); }

 private:
  struct InTransit {
    Tensor gradient;         // bf16; f32 for a vector
    Tensor base;             // bf16, base of the forecast
    std::int64_t write = 0;  // pending write of the gradient
    bool has_gradient = false;
  };
  void compose(const Stream& stream) override;
  void send(const DelayedStep& step, const Stream& stream) override;
  void allocate(const Stream& stream) override;
  void free_buffers() override;
  Tensor current_gradient(const ExactWeight& weight, const Stream& stream) override;
  void write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                      const LoadedWeight& here) override;
  void update_weight_delayed(ExactWeight& weight, const LoadedWeight& here, std::int64_t step,
                             const DelayedStep& given, const std::deque<PendingUpdate>& pending,
                             PredictionMiss& miss) override;
  /// Returns the f32 forecast from the loaded weight after `steps` updates.
  UpdateForecast forecast_of(const ExactWeight& weight, std::int64_t steps,
                             std::span<const float> rates, const LoadedWeight& here,
                             bool keeps_exact);
  struct WeightEstimate {
    Tensor predicted, before;
  };
  WeightEstimate estimate_of(const ExactWeight& weight, const Tensor& gradient,
                             const DelayedStep& given, const LoadedWeight& here);

  bool measures(std::size_t index, std::int64_t step) const;

  const Stream& home_;
  std::vector<InTransit> in_transit_;
  Prefetcher bases_;      // read from a file
  Prefetcher gradients_;  // written to a file
};

}  // namespace hybrid_trainer
