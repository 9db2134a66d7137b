#include "src/optim/adafactor.h"

#include "kernels/updates/optimizer_update.h"

namespace hybrid_trainer {

Adafactor::Adafactor(const OptimizerConfig& config, std::vector<Parameter*> parameters,
                     const Stream&, const StateHome& home)
    : weight_decay_(config.weight_decay), parameters_(std::move(parameters)), copies_(home.copies) {
  for (Parameter* parameter : parameters_) {
    const Shape& shape = parameter->shape();
    const std::int64_t columns = shape[shape.rank() - 1];
    const auto zeros = [&](std::int64_t count) {
      return Tensor::zeros({count}, DType::kF32, MemoryKind::kOptimizerState, home.stream);
    };
    const std::int64_t rows = columns > 0 ? parameter->elements() / columns : 0;
    slots_.push_back({parameter, zeros(rows), zeros(columns)});
  }
}

void Adafactor::begin_step(const Stream&) {
  for (const Slot& slot : slots_) {
    require_state(*slot.parameter, slot.rows);
    require_state(*slot.parameter, slot.columns);
  }
  ++steps_;
}

void Adafactor::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                              const Stream& stream) {
  const Slot& slot = slots_[index];
  const Parameter& parameter = *slot.parameter;
  const Tensor given = parameter.gradient();
  if (!given) return;
  const kernels::AdafactorSettings settings{
      .learning_rate = learning_rate,
      .decay = static_cast<float>(1 - std::pow(static_cast<double>(steps_), -0.8)),
      .weight_decay = decay_of(parameter, weight_decay_),
      .gradient_scale = gradient_scale};
  const StagedTensor gradient(given, Use::kRead, stream);
  const UpdatedWeight weight(parameter, stream);
  const StagedState rows(slot.rows, copies_, stream), columns(slot.columns, copies_, stream);
  kernels::adafactor_update(weight.master, rows, columns, gradient, weight.compute_copy, settings,
                            stream);
}

void Adafactor::write_momentum_directions(const std::vector<Tensor>& directions, float,
                                          const Stream& stream) {
  require_directions(directions, parameters_);
  for (const Tensor& direction : directions)
    fill_zero(StagedTensor(direction, Use::kWrite, stream), stream);
}

void Adafactor::visit_state(const StateVisitor& visit) {
  for (Slot& slot : slots_) {
    const std::string& name = slot.parameter->name();
    constexpr StateRole kRole = StateRole::kSharedSecondMoment;
    visit({slot.parameter, kRole, name + ".rows.v"}, slot.rows);
    visit({slot.parameter, kRole, name + ".columns.v"}, slot.columns);
  }
}

}  // namespace hybrid_trainer
