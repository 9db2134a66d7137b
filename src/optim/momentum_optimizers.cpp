#include "src/optim/momentum_optimizers.h"

#include "kernels/updates/optimizer_update.h"

namespace hybrid_trainer {

MomentumOptimizer::MomentumOptimizer(std::vector<Parameter*> parameters, bool keeps_momentum,
                                     const StateHome& home, std::int64_t state_bits)
    : parameters_(std::move(parameters)), keeps_momentum_(keeps_momentum), copies_(home.copies) {
  for (const Parameter* parameter : parameters_)
    moments_.push_back(keeps_momentum ? make_moment(*parameter, state_bits, home.stream)
                                      : Moment{});
}

void MomentumOptimizer::require_moments() const {
  for (std::size_t i = 0; i < moments_.size() && keeps_momentum_; ++i)
    require_state(*parameters_[i], moments_[i]);
}

void MomentumOptimizer::begin_step(const Stream&) {
  require_moments();
  ++steps_;
}

void MomentumOptimizer::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                                      const Stream& stream) {
  const Tensor given = parameters_[index]->gradient();
  if (!given) return;
  const StagedTensor gradient(given, Use::kRead, stream);
  const StagedMoment m(moments_[index], copies_, stream);
  update({parameters_[index], m.values, m.scales}, gradient, learning_rate, gradient_scale, stream);
}

void MomentumOptimizer::write_momentum_directions(const std::vector<Tensor>& directions,
                                                  float learning_rate, const Stream& stream) {
  require_directions(directions, parameters_);
  require_moments();
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    if (parameters_[i]->elements() == 0) continue;
    const StagedTensor direction(directions[i], Use::kWrite, stream);
    if (!keeps_momentum_) {
      fill_zero(direction, stream);
      continue;
    }
    const StagedMoment m(moments_[i], copies_, stream, Use::kRead);
    write_direction(direction, {parameters_[i], m.values, m.scales}, learning_rate, stream);
  }
}

void MomentumOptimizer::visit_state(const StateVisitor& visit) {
  for (std::size_t i = 0; i < moments_.size() && keeps_momentum_; ++i)
    visit_moment({parameters_[i], StateRole::kMomentum, parameters_[i]->name() + ".m"}, moments_[i],
                 visit);
}

Sgd::Sgd(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream&,
         const StateHome& home)
    : MomentumOptimizer(std::move(parameters), config.momentum > 0, home),
      momentum_(static_cast<float>(config.momentum)),
      weight_decay_(config.weight_decay) {}

void Sgd::update(const Slot& slot, const Tensor& gradient, float learning_rate,
                 float gradient_scale, const Stream& stream) {
  const UpdatedWeight weight(*slot.parameter, stream);
  kernels::sgd_update(weight.master, slot.m, gradient, weight.compute_copy, learning_rate,
                      momentum_, decay_of(*slot.parameter, weight_decay_), gradient_scale, stream);
}

void Sgd::write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                          const Stream& stream) {
  kernels::scale(direction, slot.m, -learning_rate * momentum_, stream);
}

Lion::Lion(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream&,
           const StateHome& home)
    : MomentumOptimizer(std::move(parameters), true, home, config.state_bits),
      beta1_(static_cast<float>(config.betas.at(0))),
      beta2_(static_cast<float>(config.betas.at(1))),
      weight_decay_(config.weight_decay) {}

void Lion::update(const Slot& slot, const Tensor& gradient, float learning_rate,
                  float gradient_scale, const Stream& stream) {
  const Parameter& parameter = *slot.parameter;
  const UpdatedWeight weight(parameter, stream);
  const kernels::LionSettings settings{.learning_rate = learning_rate,
                                       .beta1 = beta1_,
                                       .beta2 = beta2_,
                                       .weight_decay = decay_of(parameter, weight_decay_),
                                       .gradient_scale = gradient_scale,
                                       .rounding_key = rounding_key(parameter, steps_),
                                       .first_element = parameter.first_element()};
  if (slot.scales) {
    kernels::lion_update_8bit(weight.master, slot.m, slot.scales, gradient, weight.compute_copy,
                              settings, stream);
  } else {
    kernels::lion_update(weight.master, slot.m, gradient, weight.compute_copy, settings, stream);
  }
}

void Lion::write_direction(const Tensor& direction, const Slot& slot, float learning_rate,
                           const Stream& stream) {
  kernels::lion_direction(direction, slot.m, learning_rate, stream);
}

namespace {

/// Predictor for Lion. The sign of a sum is not the sum of signs, so a forecast cannot contain the
/// momentum's part of an update. Therefore the momentum itself is sent to the device, in f32 or,
/// with device_side "sketch", in 8 bits.
class LionPredictor : public UpdatePredictor {
 public:
  explicit LionPredictor(const PredictedUpdates& updates)
      : config_(updates.config), sketches_(updates.sketches) {}

  UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const override {
    UpdateForecast forecast = UpdatePredictor::empty_forecast(parameter, stream);
    if (sketches_) {
      add_codes(forecast, parameter, stream);
    } else {
      forecast.momentum = empty_part(parameter.shape(), stream);
    }
    return forecast;
  }

  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float>, const Stream& stream) override {
    copy_or_wait(forecast.base, state.master, stream);
    if (sketches_) {
      write_codes(forecast, state.m, stream);
    } else {
      copy_or_wait(forecast.momentum, state.m, stream);
    }
  }

  void compose(const Tensor& live, const Parameter& parameter, const UpdateForecast& forecast,
               std::span<const kernels::GradientInFlight> gradients,
               const Stream& stream) override {
    const StagedForecast here(forecast, stream);
    const kernels::LionSettings settings{.beta1 = static_cast<float>(config_.betas[0]),
                                         .beta2 = static_cast<float>(config_.betas[1]),
                                         .weight_decay = decay_of(parameter, config_.weight_decay)};
    kernels::predicted_lion(live, here.base, here.start(), gradients, true, settings, stream);
  }

 private:
  OptimizerConfig config_;
  bool sketches_;
};

}  // namespace

std::unique_ptr<UpdatePredictor> make_lion_predictor(const PredictedUpdates& updates) {
  return std::make_unique<LionPredictor>(updates);
}

}  // namespace hybrid_trainer
