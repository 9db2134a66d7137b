#pragma once

#include <deque>
#include <span>
#include <vector>

#include "src/optim/late_updates.h"
#include "src/optim/prediction_miss.h"

namespace hybrid_trainer {

/// Late updates that are predicted. Composition k takes the forecast made after the update by gradient
/// k − L, or of the state in which the lag began; there are L forecasts, k's at k mod L.
class ForecastUpdates : public LateUpdates {
 public:
  ForecastUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                  const SpeculationSettings& settings, const Stream& device,
                  const std::shared_ptr<MemoryPool>& host, const Stream& home);
  ~ForecastUpdates() override { worker_.stop(); }
  void wait_for_exact_weights(const Stream& stream) override;
  void save(State& state) const override;
  void load(const State& state, const std::vector<float>& rates, const Stream& stream) override;

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

}  // namespace hybrid_trainer
