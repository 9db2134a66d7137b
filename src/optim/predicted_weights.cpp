#include "src/optim/predicted_weights.h"

#include <unordered_map>

#include "src/optim/make_optimizer.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

namespace {

/// Slice size that is enough to measure the prediction error of a weight.
constexpr std::int64_t kSliceElements = 8192;

Tensor slice_of(const Tensor& whole, std::int64_t elements) {
  const std::int64_t first = (whole.elements() - elements) / 2;
  return whole.view({whole.elements()}).rows(first, first + elements);
}

}  // namespace

PredictedWeights::PredictedWeights(const OptimizerConfig& config,
                                   std::vector<Parameter*> parameters, Optimizer& optimizer,
                                   const WeightPrediction& prediction, const Stream& stream)
    : parameters_(std::move(parameters)),
      optimizer_(optimizer),
      stream_(stream),
      in_same_memory_(prediction.in_same_memory),
      factor_(prediction.device_side == "shared" ? 1 : 1 / prediction.share),
      uses_own_(prediction.device_side != "momentum"),
      rules_(parameters_.size()) {
  for (const Parameter* parameter : parameters_)
    slice_elements_.push_back(std::min(parameter->elements(), kSliceElements));
  add_groups(config, prediction);
  std::unordered_map<const Parameter*, Rule*> rule_of;
  for (std::size_t i = 0; i < rules_.size(); ++i) rule_of[parameters_[i]] = &rules_[i];
  optimizer_.visit_state([&](const StateLabel& label, Tensor& tensor) {
    if (label.role == StateRole::kMomentum) rule_of.at(label.parameter)->m = &tensor;
    if (label.role == StateRole::kSecondMoment) rule_of.at(label.parameter)->v = &tensor;
  });
}

PredictedWeights::~PredictedWeights() {
  if (!in_same_memory_) end();
}

void PredictedWeights::add_groups(const OptimizerConfig& config,
                                  const WeightPrediction& prediction) {
  const std::string& device_side = prediction.device_side;
  const double missing = device_side == "momentum" ? 1
                         : device_side == "shared" ? 1 - prediction.share
                                                   : 0;
  for (const OptimizerGroup& group : optimizer_groups(config, parameters_)) {
    std::vector<Parameter*> members;
    for (const std::size_t member : group.members) {
      members.push_back(parameters_[member]);
      rules_[member].group = groups_.size();
      rules_[member].rate_factor = rate_factor_of(group.config, config);
    }
    groups_.push_back(make_update_predictor(
        group.config, device_side == "none" ? "none" : "anticipated", members, missing));
  }
}

void PredictedWeights::begin() {
  if (are_in_place()) return;
  std::vector<std::unique_ptr<WeightStorage>> made;
  for (const Parameter* parameter : parameters_) {
    const MemoryLabel label(parameter->name());
    const Tensor exact = parameter->master_in_place();
    const Tensor values = Tensor::empty_like(exact, exact.kind(), stream_);
    if (exact.elements() > 0) copy(values, exact, stream_);
    made.push_back(std::make_unique<ResidentWeight>(values));
    made.back()->compute_in(parameter->compute_dtype(), stream_);
  }
  others_ = std::move(made);
  if (!in_same_memory_) exchange();
}

void PredictedWeights::exchange() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->exchange_storage(others_[i]);
}

void PredictedWeights::exchange_values() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i]->elements() == 0) continue;
    const MemoryLabel label(parameters_[i]->name());
    const Tensor here = parameters_[i]->master_in_place(), there = others_[i]->master_in_place();
    const Tensor before = Tensor::empty_like(here, MemoryKind::kWorkspace, stream_);
    copy(before, here, stream_);
    copy(here, there, stream_);
    copy(there, before, stream_);
  }
}

void PredictedWeights::end() {
  if (!are_in_place()) return;
  if (in_same_memory_) {
    exchange_values();
  } else {
    exchange();
  }
  others_.clear();
  for (const auto& group : groups_) group->free_workspace();
}

void PredictedWeights::with_exact(const std::function<void()>& use) {
  if (!are_in_place()) return use();
  exchange();
  const std::unique_ptr<PredictedWeights, void (*)(PredictedWeights*)> exchanged(
      this, [](PredictedWeights* weights) { weights->exchange(); });
  use();
}

void PredictedWeights::predict(std::span<const OwnGradient> gradients) {
  require(are_in_place(), "predicted weights are not in place; call begin first");
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i]->elements() > 0) predict_weight(i, gradients);
  }
}

void PredictedWeights::predict_weight(std::size_t index, std::span<const OwnGradient> gradients) {
  Parameter& parameter = *parameters_[index];
  const Rule& rule = rules_[index];
  const MemoryLabel label(parameter.name());
  std::vector<float> rates;
  std::vector<kernels::GradientInFlight> in_flight;
  for (const OwnGradient& gradient : gradients) {
    const auto rate =
        static_cast<float>(rule.rate_factor * static_cast<double>(gradient.learning_rate));
    rates.push_back(rate);
    if (!uses_own_) continue;
    const auto scale = static_cast<float>(factor_ * static_cast<double>(gradient.gradient_scale));
    in_flight.push_back({gradient.of(parameter), {}, {}, scale, rate});
  }
  UpdatePredictor& predictor = *groups_[rule.group];
  UpdateForecast forecast = predictor.empty_forecast(parameter, stream_);
  if (forecast.base.raw() != forecast.exact.raw()) forecast.exact = {};
  forecast.steps = optimizer_.steps_taken();
  predictor.write_forecast(forecast,
                           {parameter, others_[index]->master_in_place(), *rule.m,
                            rule.v == nullptr ? Tensor{} : *rule.v, forecast.steps},
                           rates, stream_);
  {
    const Weight live = parameter.acquire_master(stream_, Use::kWrite);
    predictor.compose(live, parameter, forecast, in_flight, stream_);
  }
  parameter.refresh_compute_copy(stream_);
}

Tensor PredictedWeights::slices(bool of_exact) const {
  std::int64_t all = 0;
  for (const std::int64_t elements : slice_elements_) all += elements;
  const Tensor slices = Tensor::empty({all}, DType::kF32, MemoryKind::kPredictor, stream_);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (slice_elements_[i] == 0) continue;
    const bool is_other = of_exact && are_in_place();
    const Tensor whole =
        is_other ? others_[i]->master_in_place() : parameters_[i]->master_in_place();
    copy(slices.rows(first, first + slice_elements_[i]), slice_of(whole, slice_elements_[i]),
         stream_);
    first += slice_elements_[i];
  }
  return slices;
}

}  // namespace hybrid_trainer
