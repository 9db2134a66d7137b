#pragma once

#include <cmath>
#include <map>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer::testing {

inline constexpr float kRate = 0.02f, kScale = 0.5f;

inline OptimizerConfig config_of(const std::string& name) {
  OptimizerConfig config;
  config.name = name;
  return config;
}

inline float rate_of_step(std::int64_t step) { return kRate / static_cast<float>(1 + step); }

/// Parameters with a speculative optimizer. Gradients depend only on the step.
class Late {
 public:
  Late(const OptimizerConfig& config, const SpeculationSettings& settings, const Stream* home,
       DType dtype = DType::kF32, std::optional<std::size_t> host_budget = {})
      : lag_(settings.lag),
        host_(MemoryPool::create("host", host_budget)),
        device_(MemoryPool::create("device")),
        set_(device_, settings.gradient_bits),
        owner_(make_speculative_optimizer(config, set_.pointers(), settings, device_, host_.pool(),
                                          home == nullptr ? host_ : *home)) {
    for (Parameter* parameter : set_.pointers()) parameter->compute_in(dtype, device_);
    set_.before_rounding = [this] { optimizer_.wait_until_gradients_are_sent(); };
  }

  void step_now(std::size_t without = 100) {
    set_.set_gradients(static_cast<std::uint64_t>(steps_), without);
    optimizer_.step(rate_of_step(steps_), kScale, device_);
    ++steps_;
  }
  std::vector<float> rates(std::int64_t from) const {
    std::vector<float> rates;
    for (std::int64_t i = 0; i < lag_; ++i) rates.push_back(rate_of_step(from + i));
    return rates;
  }
  ArrivedUpdate step_late(bool finite = true, std::size_t without = 100) {
    optimizer_.begin_lag(rates(steps_), device_);
    set_.set_gradients(static_cast<std::uint64_t>(steps_), without);
    const DelayedStep step{finite, rate_of_step(steps_), kScale, rates(steps_ + 1)};
    ++steps_;
    return optimizer_.wait_for_delayed_step(step, device_);
  }
  void step_not_finite() {
    optimizer_.begin_lag(rates(steps_), device_);
    set_.set_gradients(99);
    for (Parameter* parameter : set_.pointers())
      parameter->gradient().data<float>()[0] = std::nanf("");
    optimizer_.wait_for_delayed_step({false, rate_of_step(steps_), NAN, rates(steps_ + 1)},
                                     device_);
    ++steps_;
  }
  /// Continues from the state that `saved` would save.
  void go_on_from(Late& saved) {
    State state;
    std::map<std::string, Tensor> moments;
    saved.optimizer_.visit_state(
        [&](const StateLabel& label, Tensor& t) { moments[label.name] = t; });
    saved.optimizer_.save_delayed(state);
    optimizer_.visit_state([&](const StateLabel& label, Tensor& tensor) {
      copy(tensor, moments.at(label.name), host_);
    });
    for (std::size_t i = 0; i < set_.size(); ++i)
      copy(set_[i].master_in_place(), saved.set_[i].master_in_place(), host_);
    optimizer_.set_steps_taken(saved.optimizer_.steps_taken());
    steps_ = saved.steps_;
    optimizer_.load_delayed(state, rates(steps_), device_);
  }
  void drain() { optimizer_.wait_for_exact_weights(device_); }
  std::vector<std::vector<float>> masters() {
    optimizer_.visit_state([](const StateLabel&, Tensor&) {});
    std::vector<std::vector<float>> all;
    for (Parameter* parameter : set_.pointers())
      all.push_back(numbers(parameter->master_in_place()));
    return all;
  }
  std::vector<std::vector<float>> state() {
    std::vector<std::vector<float>> all;
    optimizer_.visit_state(
        [&](const StateLabel&, Tensor& tensor) { all.push_back(numbers(tensor)); });
    return all;
  }
  /// The weights that products read.
  std::vector<std::vector<float>> live() {
    std::vector<std::vector<float>> all;
    for (Parameter* parameter : set_.pointers())
      all.push_back(numbers(parameter->acquire_master(device_)));
    return all;
  }

  std::int64_t lag_, steps_ = 0;
  Stream host_, device_;
  ParameterSet set_;
  std::unique_ptr<SpeculativeOptimizer> owner_;
  SpeculativeOptimizer& optimizer_ = *owner_;
};

/// Applies the same gradients immediately with the exact optimizer.
class Exact {
 public:
  explicit Exact(const OptimizerConfig& config, DType dtype = DType::kF32)
      : optimizer_(make_optimizer(config, set_.pointers(), stream_)) {
    for (Parameter* parameter : set_.pointers()) parameter->compute_in(dtype, stream_);
  }
  void step(std::size_t without = 100) {
    set_.set_gradients(static_cast<std::uint64_t>(steps_), without);
    optimizer_->step(rate_of_step(steps_), kScale, stream_);
    ++steps_;
  }
  std::vector<std::vector<float>> masters() {
    std::vector<std::vector<float>> all;
    for (Parameter* parameter : set_.pointers())
      all.push_back(numbers(parameter->master_in_place()));
    return all;
  }
  std::vector<std::vector<float>> state() {
    std::vector<std::vector<float>> all;
    optimizer_->visit_state(
        [&](const StateLabel&, Tensor& tensor) { all.push_back(numbers(tensor)); });
    return all;
  }
  std::int64_t steps_ = 0;
  Stream stream_{MemoryPool::create("device")};
  ParameterSet set_{stream_};
  std::unique_ptr<Optimizer> optimizer_;
};

inline double distance(const std::vector<std::vector<float>>& x,
                       const std::vector<std::vector<float>>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t k = 0; k < x[i].size(); ++k) {
      const double off = static_cast<double>(x[i][k]) - static_cast<double>(y[i][k]);
      sum += off * off;
    }
  }
  return std::sqrt(sum);
}

}  // namespace hybrid_trainer::testing
