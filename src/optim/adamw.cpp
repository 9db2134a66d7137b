#include "adamw.h"

#include <cmath>

#include "hybrid_trainer/kernels/optimizer_update.h"
#include "hybrid_trainer/kernels/quantization.h"
#include "optimizer_state.h"

namespace hybrid_trainer {
namespace {

/// β·(1 − β^t)/(1 − β^(t+1)): the factor by which one more step that adds zero shrinks a
/// bias-corrected mean of t > 0 steps.
double shrinkage(double beta, std::int64_t t) {
  const double steps = static_cast<double>(t);
  return beta * (1 - std::pow(beta, steps)) / (1 - std::pow(beta, steps + 1));
}

constexpr std::int64_t kLeastRoundedElements = 4096;

/// Another one for each parameter and step.
std::uint32_t rounding_key(const Parameter& parameter, std::int64_t step) {
  std::uint32_t key = static_cast<std::uint32_t>(step) * 0x9E3779B9u;
  for (const char c : parameter.name()) key = (key ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return key;
}

const OptimizerConfig& checked(const OptimizerConfig& config) {
  require(config.betas.size() == 2 && config.betas[1] > 0,
          "optimizer.betas must hold two numbers, the second above 0");
  require(config.state_bits == 32 || config.state_bits == 16 || config.state_bits == 8,
          "optimizer.state_bits must be 8, 16 or 32");
  return config;
}

}  // namespace

AdamW::Slot AdamW::make_slot(Parameter* parameter, std::int64_t state_bits, const Stream& stream) {
  const bool is_small = parameter->elements() < kLeastRoundedElements;
  if (is_small || state_bits > 8) {
    const DType dtype = !is_small && state_bits == 16 ? DType::kBF16 : DType::kF32;
    return {parameter,
            false,
            make_state(*parameter, stream, dtype),
            make_state(*parameter, stream, dtype),
            {},
            {}};
  }
  const auto zeros = [&](const Shape& shape, DType dtype) {
    return Tensor::zeros(shape, dtype, MemoryKind::kOptimizerState, stream);
  };
  const Shape blocks{kernels::quantization_blocks(parameter->elements())};
  return {parameter,
          true,
          zeros(parameter->shape(), DType::kU8),
          zeros(parameter->shape(), DType::kU8),
          zeros(blocks, DType::kF32),
          zeros(blocks, DType::kF32)};
}

void AdamW::require_slot(const Slot& slot) {
  require_state(*slot.parameter, slot.v);
  if (slot.eight_bit) require_state(*slot.parameter, slot.v_scales);
}

AdamW::AdamW(const OptimizerConfig& config, std::vector<Parameter*> parameters, const Stream&,
             const Stream& home)
    : beta1_(checked(config).betas[0]),
      beta2_(config.betas[1]),
      epsilon_(config.epsilon),
      weight_decay_(config.weight_decay),
      parameters_(std::move(parameters)),
      home_(home.pool()) {
  for (Parameter* parameter : parameters_)
    slots_.push_back(make_slot(parameter, config.state_bits, home));
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

void AdamW::step(float learning_rate, float gradient_scale, const Stream& stream) {
  for (const Slot& slot : slots_) require_slot(slot);
  ++steps_;
  kernels::AdamWSettings settings = this->settings(learning_rate);
  settings.gradient_scale = gradient_scale;
  for (const Slot& slot : slots_) {
    const Parameter& parameter = *slot.parameter;
    const Tensor given = parameter.gradient();
    if (!given) continue;
    const StagedTensor gradient(given, Use::kRead, stream);
    const UpdatedWeight weight(parameter, stream);
    settings.weight_decay = decay_of(parameter, weight_decay_);
    settings.rounding_key = rounding_key(parameter, steps_);
    const StagedState m(slot.m, home_, stream), v(slot.v, home_, stream);
    if (slot.eight_bit) {
      const StagedState m_scales(slot.m_scales, home_, stream),
          v_scales(slot.v_scales, home_, stream);
      kernels::adamw_update_8bit(weight.master, {m, m_scales, v, v_scales}, gradient,
                                 weight.compute_copy, settings, stream);
    } else {
      kernels::adamw_update(weight.master, m, v, gradient, weight.compute_copy, settings, stream);
    }
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
  // A zero gradient shrinks m̂ and v̂ by known factors, so its step is one with the current moments
  // and another learning rate and epsilon.
  const double root = std::sqrt(shrinkage(beta2_, steps_));
  kernels::AdamWSettings settings =
      this->settings(learning_rate * shrinkage(beta1_, steps_) / root);
  settings.epsilon = static_cast<float>(epsilon_ / root);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    require_slot(slot);
    const StagedTensor direction(directions[i], Use::kWrite, stream);
    const StagedState m(slot.m, home_, stream, Use::kRead), v(slot.v, home_, stream, Use::kRead);
    if (slot.eight_bit) {
      const StagedState m_scales(slot.m_scales, home_, stream, Use::kRead),
          v_scales(slot.v_scales, home_, stream, Use::kRead);
      kernels::adamw_direction_8bit(direction, {m, m_scales, v, v_scales}, settings, stream);
    } else {
      kernels::adamw_direction(direction, m, v, settings, stream);
    }
  }
}

void AdamW::visit_state(const StateVisitor& visit) {
  for (Slot& slot : slots_) {
    const std::string& name = slot.parameter->name();
    const std::string codes = slot.eight_bit ? ".codes" : "";
    visit(name + ".m" + codes, slot.m);
    if (slot.eight_bit) visit(name + ".m.scales", slot.m_scales);
    visit(name + ".v" + codes, slot.v);
    if (slot.eight_bit) visit(name + ".v.scales", slot.v_scales);
  }
}

}  // namespace hybrid_trainer
