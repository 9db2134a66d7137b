#pragma once

#include <deque>
#include <unordered_map>

#include "exact_weight.h"
#include "given_gradients.h"
#include "hybrid_trainer/core/background_worker.h"
#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"

namespace hybrid_trainer {

/// How far predictions were off, in squares, and where most.
struct PredictionMiss {
  double missed = 0, moved = 0, worst = 0;
  std::string worst_weight{};
  void add(const ExactWeight& weight, double off, double size);
  /// ‖predicted − exact‖/‖exact‖.
  double error() const;
};

/// ‖x − y‖², x is overwritten. Blocks.
double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream);

/// The two sides of a SpeculativeOptimizer: exact weights and state with the worker, and what is in
/// flight. Steps since the lag began are counted from 0; gradient k and composition k end step k.
/// Composition k takes the forecast made after the update by gradient k − L, or of the state in which
/// the lag began; there are L forecasts, k's at k mod L.
class LateUpdates {
 public:
  LateUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
              const SpeculationSettings& settings, const Stream& device,
              const std::shared_ptr<MemoryPool>& host, const Stream& home);
  virtual ~LateUpdates() = default;

  Optimizer& exact() { return *exact_; }
  /// The exact update of one weight at lag 0, between these two.
  void begin_step_now();
  void end_step_now();
  void visit_state(const Optimizer::StateVisitor& visit);
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
  /// Forecasts that are kept of each weight.
  virtual std::size_t forecasts() const { return static_cast<std::size_t>(lag_); }
  // What composition step_ waits for, the composition, and what the worker is then given.
  virtual double wait_for_forecast();
  virtual void compose(const Stream& stream);
  virtual void submit_update(const LateStep& step);
  virtual void allocate(const Stream& stream);
  virtual void free_buffers();
  virtual void send(const LateStep& step, const Stream& stream);
  /// Whether a step without an update lets all updates arrive and begins the lag anew, on exact
  /// weights: forecasts were made as if each step had one.
  virtual bool starts_anew_without_an_update() const { return true; }
  /// The gradient that its update at lag 0 takes, f32 on the host.
  virtual Tensor gradient_now(const ExactWeight& weight, const Stream& stream);
  virtual void write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                              const AtHand& here);
  /// The exact update by the gradient of that step, how far its prediction was off, and the
  /// forecast for the step L later.
  virtual void update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t step,
                                  const LateStep& given, const std::deque<Flying>& flying,
                                  PredictionMiss& miss);
  std::vector<float> rates_of(const ExactWeight& weight, std::span<const float> rates) const;
  /// For the first L compositions, where the lag begins.
  virtual void submit_first_forecasts(const std::vector<float>& rates);
  /// The newest, where it goes on.
  virtual void submit_last_forecast(const std::vector<float>& rates);
  static bool is_saved(const State& state);
  /// body(weight, at hand) for each weight; while one is used, the last is written and the next read.
  template <class Body>
  void for_weights_at_hand(const Body& body) {
    if (queue_) queue_->begin_update();
    for (ExactWeight& weight : weights_) {
      const MemoryLabel label(weight.parameter->name());
      body(weight, AtHand(weight, queue_.get(), host_));
    }
    if (queue_) queue_->end_update();
  }
  std::size_t index_of(const ExactWeight& weight) const {
    return static_cast<std::size_t>(&weight - weights_.data());
  }

  std::size_t place(std::int64_t step) const { return static_cast<std::size_t>(step % lag_); }
  std::size_t sent_place(std::int64_t step) const {
    return static_cast<std::size_t>(step % (2 * lag_ - 1));
  }
  /// Of a step, undefined where there is none; on the device of the one under way too.
  Tensor gradient_sent(const ExactWeight& weight, std::int64_t step) const;
  Tensor gradient_here(const ExactWeight& weight, std::int64_t step, const Flying& one) const;

  const std::int64_t lag_;
  Stream host_;                        // the worker's
  std::unique_ptr<StateQueue> queue_;  // of what does not lie on the host
  std::vector<ExactWeight> weights_;
  GivenGradients given_;  // to the exact optimizer
  std::unique_ptr<Optimizer> exact_;
  struct Group {
    std::unique_ptr<UpdatePredictor> on_device, on_host;
  };
  std::vector<Group> groups_;
  bool is_late_ = false;
  std::int64_t step_ = 0;      // of the composition to come
  std::deque<Flying> flying_;  // the last L, oldest first
  Event sent_;

 private:
  struct Arrived {
    std::optional<double> error;
    std::string worst_weight;
  };

  void add_weights(const std::vector<Parameter*>& parameters, const OptimizerConfig& config,
                   const SpeculationSettings& settings, const Stream& device, const Stream& home);
  void add_groups(const OptimizerConfig& config, const std::string& device_side);
  void place_state(const Stream& home);
  void start(const std::vector<float>& rates);
  void bring_exact_weights(const Stream& stream);
  /// The gradients of step `last` and those before it that are not in its forecast.
  std::vector<kernels::GradientInFlight> in_flight(const ExactWeight& weight, std::int64_t last,
                                                   const std::deque<Flying>& flying,
                                                   bool on_device) const;
  void update_late(std::int64_t step, const LateStep& given, const std::deque<Flying>& flying);
  void submit_forecast(std::size_t at, std::vector<float> rates);

  std::vector<std::size_t> first_piece_;  // of each parameter, and the end
  /// Of tensors of the exact optimizer that are parts, the first of each: the whole.
  struct WholeState {
    StateLabel label;
    Tensor tensor;
  };
  std::unordered_map<const Tensor*, WholeState> whole_state_;
  std::int64_t first_job_ = 0;    // whose forecast is for composition 0
  std::vector<Arrived> arrived_;  // by step
  SpeculationUse use_;

 protected:
  BackgroundWorker worker_;  // stops before the rest goes
};

}  // namespace hybrid_trainer
