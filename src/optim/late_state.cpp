#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "late_updates.h"

namespace hybrid_trainer {
namespace {

std::string key_of(const char* what, std::size_t at, const ExactWeight& weight) {
  return concat("speculation.", what, ".", at, ".", weight.exact->name());
}

void wait_and_take(const Tensor& to, const State& state, const std::string& name,
                   const Stream& stream) {
  const Tensor& from = state.tensor(name);
  if (from.shape() != to.shape() || from.dtype() != to.dtype()) {
    throw DataError(concat("the checkpoint's ", name, " is ", name_of(from.dtype()), " ",
                           from.shape().text(), ", want ", name_of(to.dtype()), " ",
                           to.shape().text(),
                           "; go on with the run's own phases and mixed_precision"));
  }
  wait_for_copy(to, from, stream);
}

}  // namespace

/// The newest forecast is not kept: it follows from the exact state.
void LateUpdates::save(State& state) const {
  const bool is_under_way = is_late_ && step_ > 0;  // else begin() makes the same anew
  state.integers["speculation.late"] = is_under_way ? 1 : 0;
  if (!is_under_way) return;
  state.integers["speculation.step"] = step_;
  std::vector<double> flying, errors;
  for (const Flying& one : flying_) {
    flying.insert(flying.end(), {one.finite ? 1.0 : 0.0, static_cast<double>(one.learning_rate),
                                 static_cast<double>(one.scale)});
  }
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    errors.push_back(arrived_[i].error.value_or(std::numeric_limits<double>::quiet_NaN()));
    state.texts[concat("speculation.worst.", i)] = arrived_[i].worst_weight;
  }
  state.series["speculation.flying"] = flying;
  state.series["speculation.errors"] = errors;
  for (const ExactWeight& weight : weights_) {
    state.tensors["speculation.live." + weight.exact->name()] = weight.of(weight.live->live());
    for (std::size_t at = 0; at < weight.forecasts.size(); ++at) {
      if (at == place(step_ - 1)) continue;
      UpdateForecast forecast = weight.forecasts[at];
      const std::string key = key_of("forecast", at, weight);
      state.integers[key + ".steps"] = forecast.steps;
      forecast.visit_tensors([&](const char* part, const Tensor& tensor) {
        if (tensor) state.tensors[concat(key, ".", part)] = tensor;
      });
    }
    for (std::int64_t step = std::max<std::int64_t>(0, step_ - lag_ + 1); step < step_; ++step) {
      const std::size_t at = sent_place(step);
      if (weight.has_sent[at] != 0) state.tensors[key_of("gradient", at, weight)] = weight.sent[at];
    }
  }
}

bool LateUpdates::is_saved(const State& state) {
  return state.integers.contains("speculation.late") && state.integer("speculation.late") != 0;
}

void LateUpdates::load(const State& state, const std::vector<float>& rates, const Stream& stream) {
  if (!is_saved(state)) return;
  allocate(stream);
  is_late_ = true;
  step_ = state.integer("speculation.step");
  flying_.clear();
  const std::vector<double>& flying = state.reals_of("speculation.flying");
  for (std::size_t i = 0; i + 2 < flying.size(); i += 3)
    flying_.push_back(
        {flying[i] != 0, static_cast<float>(flying[i + 1]), static_cast<float>(flying[i + 2])});
  const std::vector<double>& errors = state.reals_of("speculation.errors");
  for (std::size_t i = 0; i < arrived_.size() && i < errors.size(); ++i) {
    arrived_[i] = {{}, state.text(concat("speculation.worst.", i))};
    if (!std::isnan(errors[i])) arrived_[i].error = errors[i];
  }
  for (ExactWeight& weight : weights_) {
    wait_and_take(weight.of(weight.live->live()), state, "speculation.live." + weight.exact->name(),
                  stream);
    weight.live->set_exact(false);
    for (std::size_t at = 0; at < weight.forecasts.size(); ++at) {
      if (at == place(step_ - 1)) continue;
      UpdateForecast& forecast = weight.forecasts[at];
      const std::string key = key_of("forecast", at, weight);
      forecast.steps = state.integer(key + ".steps");
      forecast.visit_tensors([&](const char* part, const Tensor& tensor) {
        if (tensor) wait_and_take(tensor, state, concat(key, ".", part), host_);
      });
    }
    for (std::int64_t step = std::max<std::int64_t>(0, step_ - lag_ + 1); step < step_; ++step) {
      const std::size_t at = sent_place(step);
      const std::string key = key_of("gradient", at, weight);
      weight.has_sent[at] = state.tensors.contains(key) ? 1 : 0;
      if (weight.has_sent[at] == 0) continue;
      wait_and_take(weight.sent[at], state, key, host_);
      wait_for_copy(weight.flying[static_cast<std::size_t>(step % (lag_ - 1))], weight.sent[at],
                    stream);
    }
  }
  submit_last_forecast(rates);
}

}  // namespace hybrid_trainer
