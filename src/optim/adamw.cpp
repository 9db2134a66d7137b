#include "src/optim/adamw.h"

namespace hybrid_trainer {

namespace {

/// Returns the factor by which a further value of 0 reduces a bias-corrected mean of t > 0 values.
double shrinkage(double beta, std::int64_t t) {
  const double steps = static_cast<double>(t);
  return beta * (1 - std::pow(beta, steps)) / (1 - std::pow(beta, steps + 1));
}

const OptimizerConfig& checked(const OptimizerConfig& config) {
  require(config.betas.size() == 2 && config.betas[1] > 0,
          "optimizer.betas must have two numbers, the second above 0");
  return config;
}

void add_factors(UpdateForecast& forecast, const Parameter& parameter, const Stream& stream) {
  const std::int64_t columns = parameter.shape()[parameter.shape().rank() - 1];
  forecast.rows = empty_part({parameter.elements() / columns}, stream);
  forecast.columns = empty_part({columns}, stream);
}

/// Predictor for AdamW. With "anticipated", `base` includes the momentum's contribution to each
/// pending update; the device adds the gradients in flight, with a second moment factored by rows
/// and columns. With "sketch", `base` is the exact weight, and the device applies the whole rule.
class AdamWPredictor : public UpdatePredictor {
 public:
  explicit AdamWPredictor(const PredictedUpdates& updates)
      : config_(updates.config), sketches_(updates.sketches), missing_(updates.missing) {}

  UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const override {
    UpdateForecast forecast = UpdatePredictor::empty_forecast(parameter, stream);
    add_factors(forecast, parameter, stream);
    if (sketches_) {
      add_codes(forecast, parameter, stream);
    } else {
      forecast.base = empty_part(parameter.shape(), stream);
    }
    return forecast;
  }

  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float> rates, const Stream& stream) override {
    kernels::row_and_column_means(forecast.rows, forecast.columns, state.v, 1, false, stream);
    if (forecast.exact) copy_or_wait(forecast.exact, state.master, stream);
    if (sketches_) {
      write_codes(forecast, state.m, stream);
      return;
    }
    const double decay = decay_of(state.parameter, config_.weight_decay);
    if (state.steps == 0) {
      kernels::scale(forecast.base, state.master, static_cast<float>(decay_factor(rates, decay)),
                     stream);
      return;
    }
    kernels::AdamWSettings now = settings(state.parameter, state.steps);
    now.learning_rate = static_cast<float>(momentum_rate(state.steps, rates, decay));
    kernels::adamw_direction(forecast.base, state.m, state.v, now, stream);
    add_decayed(forecast.base, state.master, decay_factor(rates, decay), stream);
  }

  void compose(const Tensor& live, const Parameter& parameter, const UpdateForecast& forecast,
               std::span<const kernels::GradientInFlight> gradients,
               const Stream& stream) override {
    const StagedForecast here(forecast, stream);
    std::vector<kernels::GradientInFlight> given(gradients.begin(), gradients.end());
    if (!sketches_ && parameter.shape().rank() > 1) {
      for (kernels::GradientInFlight& pending : given) {
        UpdateForecast factors;
        add_factors(factors, parameter, stream);
        kernels::row_and_column_means(factors.rows, factors.columns, pending.gradient,
                                      pending.scale, true, stream);
        pending.rows = factors.rows;
        pending.columns = factors.columns;
      }
    }
    kernels::predicted_adamw(live, here.base, here.start(), here.rows, here.columns, given,
                             sketches_, settings(parameter, forecast.steps), stream);
  }

 private:
  kernels::AdamWSettings settings(const Parameter& parameter, std::int64_t steps) const {
    kernels::AdamWSettings settings;
    settings.beta1 = static_cast<float>(config_.betas[0]);
    settings.beta2 = static_cast<float>(config_.betas[1]);
    settings.epsilon = static_cast<float>(config_.epsilon);
    settings.weight_decay = decay_of(parameter, config_.weight_decay);
    settings.step = steps;
    return settings;
  }
  /// Returns the rate at which one step with the current moments moves as far as the momentum does
  /// in the pending steps i = 1, 2, …: Σ lr_i·share_i/(1 − β1^(t+i))·(decays after i), times 1 −
  /// β1^t. share_i is β1^i, plus missing·(1 − β1^i)/(1 − β1^t) if the momentum m/(1 − β1^t)
  /// replaces a missing part of the gradients.
  double momentum_rate(std::int64_t steps, std::span<const float> rates, double decay) const {
    const double beta = config_.betas[0];
    const double now = 1 - std::pow(beta, static_cast<double>(steps));
    double sum = 0, power = 1;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      power *= beta;
      const double correction =
          1 - std::pow(beta, static_cast<double>(steps) + 1.0 + static_cast<double>(i));
      const double share = power + missing_ * (1 - power) / now;
      sum += static_cast<double>(rates[i]) * share / correction *
             decay_factor(rates.subspan(i + 1), decay);
    }
    return sum * now;
  }

  OptimizerConfig config_;
  bool sketches_;
  double missing_;
};

}  // namespace

AdamW::AdamW(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream&,
             const StateHome& home, bool by_blocks)
    : beta1_(checked(config).betas[0]),
      beta2_(config.betas[1]),
      epsilon_(config.epsilon),
      weight_decay_(config.weight_decay),
      by_blocks_(by_blocks),
      parameters_(std::move(parameters)),
      copies_(home.copies) {
  for (Parameter* parameter : parameters_) {
    slots_.push_back({parameter, make_moment(*parameter, config.state_bits, home.stream),
                      by_blocks ? Moment{Tensor::zeros({parameter->blocks()}, DType::kF32,
                                                       MemoryKind::kOptimizerState, home.stream),
                                         {}}
                                : make_moment(*parameter, config.state_bits, home.stream)});
  }
}

kernels::AdamWSettings AdamW::settings(double learning_rate) const {
  kernels::AdamWSettings settings;
  settings.learning_rate = static_cast<float>(learning_rate);
  settings.beta1 = static_cast<float>(beta1_);
  settings.beta2 = static_cast<float>(beta2_);
  settings.epsilon = static_cast<float>(epsilon_);
  settings.step = steps_;
  return settings;
}

kernels::AdamWSettings AdamW::settings(const Parameter& parameter, float learning_rate,
                                       float gradient_scale) const {
  kernels::AdamWSettings settings = this->settings(learning_rate);
  settings.gradient_scale = gradient_scale;
  settings.weight_decay = decay_of(parameter, weight_decay_);
  settings.rounding_key = rounding_key(parameter, steps_);
  settings.first_element = parameter.first_element();
  return settings;
}

void AdamW::begin_step(const Stream&) {
  require_slots();
  ++steps_;
}

void AdamW::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                          const Stream& stream) {
  const Slot& slot = slots_[index];
  const Parameter& parameter = *slot.parameter;
  const Tensor given = parameter.gradient();
  if (!given) return;
  const kernels::AdamWSettings settings = this->settings(parameter, learning_rate, gradient_scale);
  const StagedTensor gradient(given, Use::kRead, stream);
  const UpdatedWeight weight(parameter, stream);
  const StagedMoment m(slot.m, copies_, stream), v(slot.v, copies_, stream);
  if (by_blocks_) {
    kernels::adam_mini_update(weight.master, m.values, v.values, gradient, weight.compute_copy,
                              settings, stream);
  } else if (slot.m.eight_bit) {
    kernels::adamw_update_8bit(weight.master, {m.values, m.scales, v.values, v.scales}, gradient,
                               weight.compute_copy, settings, stream);
  } else {
    kernels::adamw_update(weight.master, m.values, v.values, gradient, weight.compute_copy,
                          settings, stream);
  }
}

bool AdamW::needs_no_copies(const Slot& slot, const Stream& stream) const {
  const Parameter& parameter = *slot.parameter;
  const Tensor gradient = parameter.gradient();
  return parameter.storage().fixed_place() != nullptr &&
         parameter.master_in_place().pool() == stream.pool() && !copies_.pages &&
         slot.m.values.pool() == stream.pool() && slot.v.values.pool() == stream.pool() &&
         gradient.device().type == stream.device().type;
}

void AdamW::update_weights(float learning_rate, float gradient_scale, const Stream& stream) {
  std::vector<kernels::AdamWUpdate> updates;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const Parameter& parameter = *slot.parameter;
    if (!parameter.gradient()) continue;
    if (by_blocks_ || slot.m.eight_bit || !needs_no_copies(slot, stream)) {
      update_weight(i, learning_rate, gradient_scale, stream);
      continue;
    }
    const UpdatedWeight weight(parameter, stream);
    updates.push_back({weight.master, slot.m.values, slot.v.values, parameter.gradient(),
                       weight.compute_copy, settings(parameter, learning_rate, gradient_scale)});
  }
  kernels::adamw_updates(updates, stream);
}

void AdamW::require_slots() const {
  for (const Slot& slot : slots_) {
    require_state(*slot.parameter, slot.m);
    require_state(*slot.parameter, slot.v);
  }
}

void AdamW::write_momentum_directions(const std::vector<Tensor>& directions, float learning_rate,
                                      const Stream& stream) {
  require_directions(directions, parameters_);
  if (steps_ == 0) {
    for (const Tensor& direction : directions)
      fill_zero(StagedTensor(direction, Use::kWrite, stream), stream);
    return;
  }
  // A zero gradient shrinks m̂ and v̂ by known factors, like a change of rate and epsilon.
  const double root = std::sqrt(shrinkage(beta2_, steps_));
  kernels::AdamWSettings settings =
      this->settings(learning_rate * shrinkage(beta1_, steps_) / root);
  settings.epsilon = static_cast<float>(epsilon_ / root);
  require_slots();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.parameter->elements() == 0) continue;
    const StagedTensor direction(directions[i], Use::kWrite, stream);
    const StagedMoment m(slot.m, copies_, stream, Use::kRead),
        v(slot.v, copies_, stream, Use::kRead);
    if (by_blocks_) {
      kernels::adam_mini_direction(direction, m.values, v.values, settings, stream);
    } else if (slot.m.eight_bit) {
      kernels::adamw_direction_8bit(direction, {m.values, m.scales, v.values, v.scales}, settings,
                                    stream);
    } else {
      kernels::adamw_direction(direction, m.values, v.values, settings, stream);
    }
  }
}

void AdamW::visit_state(const StateVisitor& visit) {
  for (Slot& slot : slots_) {
    const std::string& name = slot.parameter->name();
    visit_moment({slot.parameter, StateRole::kMomentum, name + ".m"}, slot.m, visit);
    const StateRole second = by_blocks_ ? StateRole::kSharedSecondMoment : StateRole::kSecondMoment;
    visit_moment({slot.parameter, second, name + ".v"}, slot.v, visit);
  }
}

std::unique_ptr<UpdatePredictor> make_adamw_predictor(const PredictedUpdates& updates) {
  return std::make_unique<AdamWPredictor>(updates);
}

}  // namespace hybrid_trainer
