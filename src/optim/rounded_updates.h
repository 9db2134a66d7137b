#pragma once

#include "src/optim/forecast_updates.h"

namespace hybrid_trainer {

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
