#include "late_updates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_source.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "optimizer_groups.h"

namespace hybrid_trainer {

double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  kernels::axpy(x, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(x, stream);
}

void PredictionMiss::add(const ExactWeight& weight, double off, double size) {
  missed += off;
  moved += size;
  if (off <= worst * size) return;
  worst = size > 0 ? off / size : std::numeric_limits<double>::infinity();
  worst_weight = weight.parameter->name();
}

double PredictionMiss::error() const {
  if (missed == 0) return 0;
  const bool known = moved > 0 && std::isfinite(missed);
  return known ? std::sqrt(missed / moved) : std::numeric_limits<double>::infinity();
}

LateUpdates::LateUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                         const SpeculationSettings& settings, const Stream& device,
                         const std::shared_ptr<MemoryPool>& host, const Stream& home)
    : lag_(settings.lag),
      host_(host),
      queue_(home.pool() != host ? std::make_unique<StateQueue>() : nullptr),
      arrived_(static_cast<std::size_t>(settings.lag)),
      worker_(settings.worker_threads, !device.device().simulated) {
  add_weights(parameters, config, settings, device, home);
  std::vector<Parameter*> exact;
  for (const ExactWeight& weight : weights_) exact.push_back(weight.exact.get());
  if (weights_.size() == parameters.size()) {
    exact_ = make_optimizer(config, exact, host_, home);
  } else {
    const Stream nowhere(MemoryPool::create("state", {}, simulated_memory({})));
    exact_ = make_optimizer(config, exact, host_, nowhere);
  }
  place_state(home);
  add_groups(config, settings.device_side);
}

void LateUpdates::add_weights(const std::vector<Parameter*>& parameters,
                              const OptimizerConfig& config, const SpeculationSettings& settings,
                              const Stream& device, const Stream& home) {
  std::vector<std::int64_t> most(parameters.size(), std::numeric_limits<std::int64_t>::max());
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    if (settings.gradient_bits == 32 || group.config.name != "adamw") continue;
    for (const std::size_t member : group.members) most[member] = settings.piece_elements;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = *parameters[i];
    const MemoryLabel label(parameter.name());
    const Tensor before = parameter.home_master();
    const Tensor master = Tensor::empty_like(before, MemoryKind::kMasterWeights, home);
    wait_for_copy(master, before, device);
    auto live = std::make_unique<LiveWeight>(master, device);
    const std::vector<std::int64_t> cuts = piece_rows(parameter, most[i]);
    first_piece_.push_back(weights_.size());
    for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
      ExactWeight weight;
      weight.parameter = &parameter;
      weight.first_row = cuts[piece];
      weight.rows = cuts[piece + 1] - cuts[piece];
      weight.live = live.get();
      const Tensor rows = weight.of(master);
      auto storage = std::make_unique<ExactStorage>(rows, *live);
      weight.storage = storage.get();
      const std::string name = weight.is_part()
                                   ? concat(parameter.name(), ".rows.", weight.first_row)
                                   : parameter.name();
      weight.exact =
          std::make_unique<Parameter>(name, rows.shape(), parameter.role(), std::move(storage));
      if (!weight.is_part()) weight.exact->set_blocks(parameter.blocks());
      weights_.push_back(std::move(weight));
    }
    device.synchronize();  // before the old memory goes
    parameter.set_storage(std::move(live));
  }
  first_piece_.push_back(weights_.size());
}

/// Gives each weight its tensors of the state; the whole of what is in pieces is one tensor.
void LateUpdates::place_state(const Stream& home) {
  std::unordered_map<const Parameter*, ExactWeight*> weight_of;
  for (ExactWeight& weight : weights_) weight_of[weight.exact.get()] = &weight;
  const bool has_parts = weights_.size() + 1 != first_piece_.size();
  std::map<std::pair<const Parameter*, StateRole>, Tensor> wholes;
  exact_->visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (!is_moment(label.role)) return;
    ExactWeight& weight = *weight_of.at(label.parameter);
    const bool is_momentum = label.role == StateRole::kMomentum;
    weight.state.push_back(&tensor);
    (is_momentum ? weight.m : weight.v) = &tensor;
    if (!has_parts) return;
    const MemoryLabel of_weight(weight.parameter->name());
    Tensor& whole = wholes[{weight.parameter, label.role}];
    const bool is_first = !whole;
    if (is_first)
      whole = Tensor::zeros(weight.parameter->shape(), tensor.dtype(), MemoryKind::kOptimizerState,
                            home);
    tensor = weight.of(whole);
    if (!weight.is_part()) return;
    const std::string name = weight.parameter->name() + (is_momentum ? ".m" : ".v");
    whole_state_[&tensor] = {{weight.parameter, label.role, name}, is_first ? whole : Tensor{}};
  });
}

void LateUpdates::visit_state(const Optimizer::StateVisitor& visit) {
  exact_->visit_state([&](const StateLabel& label, Tensor& tensor) {
    const auto found = whole_state_.find(&tensor);
    if (found == whole_state_.end()) return visit(label, tensor);
    if (found->second.tensor) visit(found->second.label, found->second.tensor);
  });
}

void LateUpdates::add_groups(const OptimizerConfig& config, const std::string& device_side) {
  std::vector<Parameter*> all;
  for (const ExactWeight& weight : weights_) all.push_back(weight.exact.get());
  for (const OptimizerGroup& group : optimizer_groups(config, all)) {
    std::vector<Parameter*> members;
    for (const std::size_t member : group.members) {
      members.push_back(all[member]);
      weights_[member].group = groups_.size();
      weights_[member].rate_factor = rate_factor_of(group.config, config);
    }
    groups_.push_back({make_update_predictor(group.config, device_side, members),
                       make_update_predictor(group.config, device_side, members)});
  }
}

void LateUpdates::begin_step_now() {
  exact_->begin_step(host_);
  if (queue_) queue_->begin_update();
}

void LateUpdates::end_step_now() {
  if (queue_) queue_->end_update();
  exact_->end_step(host_);
}

void LateUpdates::update_now(std::size_t index, float learning_rate, float gradient_scale,
                             const Stream& stream) {
  for (std::size_t i = first_piece_[index]; i < first_piece_[index + 1]; ++i) {
    ExactWeight& weight = weights_[i];
    if (!weight.parameter->gradient()) return;
    given_.give(*weight.exact, gradient_now(weight, stream));
    const AtHand here(weight, queue_.get(), host_);
    exact_->update_weight(i, learning_rate, gradient_scale, host_);
    weight.live->refresh_from(here.master(), stream, weight.first_row);
    if (queue_) stream.synchronize();  // before what is at hand goes
  }
}

Tensor LateUpdates::gradient_now(const ExactWeight& weight, const Stream& stream) {
  const Tensor gradient = weight.parameter->gradient();
  if (gradient.device().type == host_.device().type) return gradient;
  const Tensor here = Tensor::empty_like(gradient, MemoryKind::kGradients, host_);
  wait_for_copy(here, gradient, stream);
  return here;
}

void LateUpdates::allocate(const Stream& stream) {
  for (ExactWeight& weight : weights_) {
    const MemoryLabel label(weight.parameter->name());
    while (weight.forecasts.size() < forecasts())
      weight.forecasts.push_back(
          groups_[weight.group].on_host->empty_forecast(*weight.exact, host_));
    const auto gradient = [&](const Stream& where) {
      return Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kGradients, where);
    };
    while (weight.sent.size() < static_cast<std::size_t>(2 * lag_ - 1))
      weight.sent.push_back(gradient(host_));
    weight.has_sent.resize(weight.sent.size(), 0);
    while (weight.flying.size() < static_cast<std::size_t>(lag_ - 1))
      weight.flying.push_back(gradient(stream));
  }
}

void LateUpdates::begin(const std::vector<float>& rates, const Stream& stream) {
  if (is_late_) return;
  try {
    allocate(stream);
  } catch (const OutOfMemory&) {
    free_buffers();
    throw;
  }
  is_late_ = true;
  start(rates);
}

/// From exact weights on both sides.
void LateUpdates::start(const std::vector<float>& rates) {
  step_ = 0;
  flying_.clear();
  arrived_.assign(arrived_.size(), {});
  submit_first_forecasts(rates);
}

void LateUpdates::free_buffers() {
  for (ExactWeight& weight : weights_) {
    weight.forecasts.clear();
    weight.sent.clear();
    weight.flying.clear();
  }
}

void LateUpdates::submit_first_forecasts(const std::vector<float>& rates) {
  first_job_ = worker_.submitted();
  for (std::int64_t i = 0; i < lag_; ++i)
    submit_forecast(place(i), {rates.begin(), rates.begin() + i + 1});
}

void LateUpdates::submit_last_forecast(const std::vector<float>& rates) {
  first_job_ = worker_.submitted() - (step_ - 1 + lag_);
  submit_forecast(place(step_ - 1), rates);
}

void LateUpdates::submit_forecast(std::size_t at, std::vector<float> rates) {
  worker_.submit([this, at, rates = std::move(rates)] {
    for_weights_at_hand(
        [&](ExactWeight& weight, const AtHand& here) { write_forecast(weight, at, rates, here); });
  });
}

void LateUpdates::write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                                 const AtHand& here) {
  UpdateForecast& forecast = weight.forecasts[at];
  forecast.steps = exact_->steps_taken();
  groups_[weight.group].on_host->write_forecast(
      forecast,
      {*weight.exact, here.master(), *weight.m, weight.v == nullptr ? Tensor{} : *weight.v,
       forecast.steps},
      rates_of(weight, rates), host_);
}

std::vector<float> LateUpdates::rates_of(const ExactWeight& weight,
                                         std::span<const float> rates) const {
  std::vector<float> own(rates.begin(), rates.end());
  for (float& rate : own) rate = static_cast<float>(weight.rate_factor * static_cast<double>(rate));
  return own;
}

Tensor LateUpdates::gradient_sent(const ExactWeight& weight, std::int64_t step) const {
  const std::size_t at = sent_place(step);
  return weight.has_sent[at] != 0 ? weight.sent[at] : Tensor{};
}

Tensor LateUpdates::gradient_here(const ExactWeight& weight, std::int64_t step,
                                  const Flying& one) const {
  if (step == step_) return one.finite ? weight.parameter->gradient() : Tensor{};
  if (!gradient_sent(weight, step)) return {};
  return weight.flying[static_cast<std::size_t>(step % (lag_ - 1))];
}

std::vector<kernels::GradientInFlight> LateUpdates::in_flight(const ExactWeight& weight,
                                                              std::int64_t last,
                                                              const std::deque<Flying>& flying,
                                                              bool on_device) const {
  std::vector<kernels::GradientInFlight> gradients;
  const auto count = static_cast<std::int64_t>(flying.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t step = last - count + 1 + i;
    const Flying& one = flying[static_cast<std::size_t>(i)];
    const Tensor gradient =
        on_device ? gradient_here(weight, step, one) : gradient_sent(weight, step);
    if (!gradient) continue;
    const double rate = weight.rate_factor * static_cast<double>(one.learning_rate);
    gradients.push_back({gradient, {}, {}, one.scale, static_cast<float>(rate)});
  }
  return gradients;
}

void LateUpdates::compose(const Stream& stream) {
  for (ExactWeight& weight : weights_) {
    const MemoryLabel label(weight.parameter->name());
    const auto gradients = in_flight(weight, step_, flying_, true);
    groups_[weight.group].on_device->compose(weight.live->live(), *weight.parameter,
                                             weight.forecasts[place(step_)], gradients, stream);
    weight.live->set_exact(false);
  }
}

void LateUpdates::send(const LateStep& step, const Stream& stream) {
  for (ExactWeight& weight : weights_) {
    const Tensor gradient = weight.parameter->gradient();
    const bool goes = gradient && step.finite;
    weight.has_sent[sent_place(step_)] = goes ? 1 : 0;
    if (!goes) continue;
    copy_or_wait(weight.sent[sent_place(step_)], gradient, stream);
    if (lag_ > 1)
      copy_or_wait(weight.flying[static_cast<std::size_t>(step_ % (lag_ - 1))], gradient, stream);
  }
  sent_.record(stream);
}

ArrivedUpdate LateUpdates::wait_for_step(const LateStep& step, const Stream& stream) {
  ArrivedUpdate result;
  result.waited_seconds = wait_for_forecast();
  result.lag = static_cast<std::int64_t>(flying_.size());
  if (result.waited_seconds > 0) ++use_.waits;
  use_.wait_seconds += result.waited_seconds;
  Arrived& arrived = arrived_[place(step_)];
  result.prediction_error = std::exchange(arrived.error, {});
  result.worst_weight = arrived.worst_weight;
  if (!step.finite && starts_anew_without_an_update()) {
    bring_exact_weights(stream);
    start(step.rates_to_come);
    return result;
  }
  flying_.push_back({step.finite, step.learning_rate, step.gradient_scale});
  if (flying_.size() > static_cast<std::size_t>(lag_)) flying_.pop_front();
  compose(stream);
  send(step, stream);
  submit_update(step);
  ++step_;
  return result;
}

double LateUpdates::wait_for_forecast() { return worker_.wait_until_done(first_job_ + step_ + 1); }

void LateUpdates::submit_update(const LateStep& step) {
  worker_.submit([this, at = step_, step, flying = flying_] { update_late(at, step, flying); });
}

/// One weight after the other.
void LateUpdates::update_late(std::int64_t step, const LateStep& given,
                              const std::deque<Flying>& flying) {
  sent_.synchronize();  // and whatever read the forecast that is written anew
  exact_->begin_step(host_);
  PredictionMiss miss;
  for_weights_at_hand([&](ExactWeight& weight, const AtHand& here) {
    update_weight_late(weight, here, step, given, flying, miss);
  });
  exact_->end_step(host_);
  arrived_[place(step)] = {miss.error(), miss.worst_weight};
}

void LateUpdates::update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t step,
                                     const LateStep& given, const std::deque<Flying>& flying,
                                     PredictionMiss& miss) {
  given_.give(*weight.exact, gradient_sent(weight, step));
  exact_->update_weight(index_of(weight), given.learning_rate, given.gradient_scale, host_);
  const Tensor guess =
      Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kWorkspace, host_);
  const UpdateForecast& forecast = weight.forecasts[place(step)];
  groups_[weight.group].on_host->compose(guess, *weight.exact, forecast,
                                         in_flight(weight, step, flying, false), host_);
  const double off = wait_for_distance(guess, here.master(), host_);
  miss.add(weight, off, wait_for_distance(forecast.exact, here.master(), host_));
  write_forecast(weight, place(step), given.rates_to_come, here);
}

void LateUpdates::bring_exact_weights(const Stream& stream) {
  worker_.wait_until_idle();
  for (ExactWeight& weight : weights_) {
    const Tensor master = weight.storage->home_master();
    weight.live->refresh_from(
        StagedTensor(master, Use::kRead, stream, master.pool() != stream.pool()), stream,
        weight.first_row);
  }
}

void LateUpdates::wait_for_exact_weights(const Stream& stream) {
  if (!is_late_) return;
  bring_exact_weights(stream);
  for (ExactWeight& weight : weights_) weight.flying.clear();
  for (const Group& group : groups_) group.on_device->free_workspace();
  is_late_ = false;
}

SpeculationUse LateUpdates::use() const {
  SpeculationUse use = use_;
  use.worker_seconds = worker_.seconds();
  return use;
}

}  // namespace hybrid_trainer
