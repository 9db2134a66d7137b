#pragma once

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/core/threads.h"
#include "src/optim/exact_weights.h"

namespace hybrid_trainer {

/// The two sides of a SpeculativeOptimizer: exact weights and state with the worker, and what is in
/// flight. Steps since the lag began are counted from 0; gradient k and composition k end step k.
class LateUpdates : public SpeculativeOptimizer {
 public:
  LateUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
              const SpeculationSettings& settings, const Stream& device,
              const std::shared_ptr<MemoryPool>& host, const Stream& home);

  void begin_step(const Stream& stream) override;
  std::size_t weights() const override { return weights_; }
  /// At lag 0.
  void update_weight(std::size_t index, float learning_rate, float gradient_scale,
                     const Stream& stream) override;
  void end_step(const Stream&) override { exact_.end_step(); }
  /// Throws Error.
  void write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                 const Stream& stream) override;
  /// Waits for the worker.
  void visit_state(const StateVisitor& visit) override;
  void set_steps_taken(std::int64_t steps) override;

  void begin_lag(const std::vector<float>& rates, const Stream& stream) override;
  bool is_late() const override { return is_late_; }
  ArrivedUpdate wait_for_late_step(const LateStep& step, const Stream& stream) override;
  void wait_for_exact_weights(const Stream& stream) override;
  SpeculationUse use() const override;
  void save_late(State& state) const override;
  void load_late(const State& state, const std::vector<float>& rates,
                 const Stream& stream) override;

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
  const std::size_t weights_;
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

/// How far predictions were off, in squares, and where most.
struct PredictionMiss {
  double missed = 0, moved = 0, worst = 0;
  std::string worst_weight{};
  /// Of a weight; a change from `before` to `after` was predicted. The first two are overwritten.
  /// Blocks.
  void wait_and_add(const ExactWeight& weight, const Tensor& predicted, const Tensor& before,
                    const Tensor& after, const Stream& stream);
  /// ‖predicted − exact‖/‖exact‖.
  double error() const;
};

/// Late updates that are predicted. Composition k takes the forecast made after the update by gradient
/// k − L, or of the state in which the lag began; there are L forecasts, k's at k mod L.
class ForecastUpdates : public LateUpdates {
 public:
  ForecastUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                  const SpeculationSettings& settings, const Stream& device,
                  const std::shared_ptr<MemoryPool>& host, const Stream& home);
  ~ForecastUpdates() override { worker_.stop(); }
  void wait_for_exact_weights(const Stream& stream) override;
  void save_late(State& state) const override;
  void load_late(const State& state, const std::vector<float>& rates,
                 const Stream& stream) override;

 protected:
  void compose(const Stream& stream) override;
  void allocate(const Stream& stream) override;
  void free_buffers() override;
  virtual void write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                              const AtHand& here);
  /// The exact update by the gradient of that step, how far its prediction was off, and the
  /// forecast for the step L later.
  virtual void update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t step,
                                  const LateStep& given, const std::deque<Flying>& flying,
                                  PredictionMiss& miss);
  std::vector<float> rates_of(const ExactWeight& weight, std::span<const float> rates) const;
  /// What a forecast is made of, at hand and after so many updates.
  static ExactWeightState state_of(const ExactWeight& weight, const AtHand& here,
                                   std::int64_t steps);
  UpdatePredictor& on_host(const ExactWeight& weight) { return *groups_[weight.group].on_host; }
  UpdatePredictor& on_device(const ExactWeight& weight) { return *groups_[weight.group].on_device; }

 private:
  struct Group {
    std::unique_ptr<UpdatePredictor> on_device, on_host;
  };
  void add_groups(const OptimizerConfig& config, const std::string& device_side);
  double wait_for_forecast() override;
  void submit_update(const LateStep& step) override;
  void submit_first_forecasts(const std::vector<float>& rates) override;
  void submit_last_forecast(const std::vector<float>& rates) override;
  void submit_forecast(std::size_t at, std::vector<float> rates);
  void update_late(std::int64_t step, const LateStep& given, const std::deque<Flying>& flying);
  /// The gradients of step `last` and those before it that are not in its forecast.
  std::vector<kernels::GradientInFlight> in_flight(const ExactWeight& weight, std::int64_t last,
                                                   const std::deque<Flying>& flying,
                                                   bool on_device) const;

  std::vector<Group> groups_;
  std::int64_t first_job_ = 0;  // whose forecast is for composition 0
};

/// Late by one step, with gradients in bf16, and in bf16 what is on its way: gradients that go to the
/// worker and weights that come from it lie where the exact state does, so that neither the device
/// nor the host holds anything else of a weight than its live values and its gradient.
///
/// The rounding of a weight to bf16 is often larger than its update: the prediction error is measured
/// by the forecast before it is rounded, made again from the exact state that it was made of; where
/// there are many weights, of an eighth of them, each step another one.
class RoundedUpdates final : public ForecastUpdates {
 public:
  /// `home` must outlive it.
  RoundedUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                 const SpeculationSettings& settings, const Stream& device,
                 const std::shared_ptr<MemoryPool>& host, const Stream& home);
  ~RoundedUpdates() override { worker_.stop(); }
  void wait_until_gradients_are_sent() override { gradients_.finish_writes(); }

 private:
  /// Of each exact weight, at home.
  struct OnItsWay {
    Tensor gradient;         // bf16, or f32 of a vector
    Tensor base;             // bf16: of the forecast
    std::int64_t write = 0;  // of the gradient
    bool has_gradient = false;
  };
  void compose(const Stream& stream) override;
  void send(const LateStep& step, const Stream& stream) override;
  void allocate(const Stream& stream) override;
  void free_buffers() override;
  Tensor gradient_now(const ExactWeight& weight, const Stream& stream) override;
  void write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                      const AtHand& here) override;
  void update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t step,
                          const LateStep& given, const std::deque<Flying>& flying,
                          PredictionMiss& miss) override;
  /// From what is at hand, which has seen so many steps; in f32.
  UpdateForecast forecast_of(const ExactWeight& weight, std::int64_t steps,
                             std::span<const float> rates, const AtHand& here, bool keeps_exact);
  struct Guess {
    Tensor predicted, before;
  };
  Guess guess_of(const ExactWeight& weight, const Tensor& gradient, const LateStep& given,
                 const AtHand& here);

  bool measures(std::size_t index, std::int64_t step) const;

  const Stream& home_;
  std::vector<OnItsWay> on_its_way_;
  Prefetcher bases_;      // from a file
  Prefetcher gradients_;  // those sent
};

}  // namespace hybrid_trainer
