#include "hybrid_trainer/optim/speculative_optimizer.h"

#include <algorithm>

#include "src/optim/experiments/selective_updates.h"
#include "src/optim/late_updates.h"

namespace hybrid_trainer {

namespace {

using Parameters = std::vector<Parameter*>;

template <class Updates>
std::unique_ptr<LateUpdates> make_late(const OptimizerConfig& config, const Parameters& parameters,
                                       const SpeculationSettings& settings, const Stream& device,
                                       const std::shared_ptr<MemoryPool>& host,
                                       const Stream& home) {
  return std::make_unique<Updates>(config, parameters, settings, device, host, home);
}

struct LateRow {
  bool (*is_wanted)(const SpeculationSettings& settings);
  decltype(&make_late<ForecastUpdates>) make_late;
};

/// The first that is wanted is made.
constexpr LateRow kLateUpdates[] = {
    {[](const SpeculationSettings& given) { return given.gradient_bits == 16; },
     make_late<RoundedUpdates>},
    {[](const SpeculationSettings& given) { return given.device_side == "selective"; },
     make_late<SelectiveUpdates>},
    {[](const SpeculationSettings&) { return true; }, make_late<ForecastUpdates>},
};

}  // namespace

SpeculativeOptimizer::SpeculativeOptimizer(const OptimizerConfig& config,
                                           std::vector<Parameter*> parameters,
                                           const SpeculationSettings& settings,
                                           const Stream& device,
                                           const std::shared_ptr<MemoryPool>& host,
                                           const Stream& home)
    : parameters_(std::move(parameters)) {
  const auto row = std::ranges::find_if(
      kLateUpdates, [&](const LateRow& way) { return way.is_wanted(settings); });
  late_ = row->make_late(config, parameters_, settings, device, host, home);
}

SpeculativeOptimizer::~SpeculativeOptimizer() = default;

void SpeculativeOptimizer::begin_step(const Stream&) {
  require(!late_->is_late(), "updates are pending; wait_for_exact_weights first");
  late_->exact().begin_step();
  ++steps_;
}

void SpeculativeOptimizer::update_weight(std::size_t index, float learning_rate,
                                         float gradient_scale, const Stream& stream) {
  late_->update_now(index, learning_rate, gradient_scale, stream);
}

void SpeculativeOptimizer::end_step(const Stream&) { late_->exact().end_step(); }

void SpeculativeOptimizer::write_momentum_directions(const std::vector<Tensor>&, float,
                                                     const Stream&) {
  require(false, "an optimizer whose state is elsewhere gives no momentum directions");
}

void SpeculativeOptimizer::visit_state(const StateVisitor& visit) {
  late_->wait_until_idle();
  late_->exact().visit_state(visit);
}

void SpeculativeOptimizer::set_steps_taken(std::int64_t steps) {
  steps_ = steps;
  late_->exact().optimizer().set_steps_taken(steps);
}

void SpeculativeOptimizer::begin_lag(const std::vector<float>& rates, const Stream& stream) {
  late_->begin(rates, stream);
}

bool SpeculativeOptimizer::is_late() const { return late_->is_late(); }

ArrivedUpdate SpeculativeOptimizer::wait_for_late_step(const LateStep& step, const Stream& stream) {
  if (step.finite) ++steps_;
  return late_->wait_for_step(step, stream);
}

void SpeculativeOptimizer::wait_until_gradients_are_sent() {
  late_->wait_until_gradients_are_sent();
}

void SpeculativeOptimizer::wait_for_exact_weights(const Stream& stream) {
  late_->wait_for_exact_weights(stream);
}

SpeculationUse SpeculativeOptimizer::use() const { return late_->use(); }

void SpeculativeOptimizer::save_late(State& state) const { late_->save(state); }

void SpeculativeOptimizer::load_late(const State& state, const std::vector<float>& rates,
                                     const Stream& stream) {
  late_->load(state, rates, stream);
}

}  // namespace hybrid_trainer
