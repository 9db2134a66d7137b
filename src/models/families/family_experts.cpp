#include "src/models/families/family_experts.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

kernels::RoutingRule routing_rule(const std::string& name) {
  if (name == kSoftmaxRule) return kernels::RoutingRule::kSoftmax;
  if (name == kSigmoidRule) return kernels::RoutingRule::kSigmoid;
  return kernels::RoutingRule::kSoftmaxOfChosen;
}

/// The losses are means over the layers that have experts.
RoutedExperts::Spec experts_of(const ModelConfig& config, kernels::Gate gate) {
  const ExpertConfig& experts = config.experts;
  std::int64_t layers = 0;
  for (std::int64_t i = 0; i < config.layers; ++i) layers += has_experts(experts, i) ? 1 : 0;
  const auto share = [&](double factor) {
    return static_cast<float>(factor / static_cast<double>(std::max<std::int64_t>(layers, 1)));
  };
  std::optional<kernels::ClampedGate> clamped;
  if (experts.gate_limit > 0) clamped.emplace(static_cast<float>(experts.gate_limit));
  return {.width = config.width,
          .inner_width = experts.inner_width,
          .routing = {.experts = experts.count,
                      .chosen = experts.chosen,
                      .rule = routing_rule(experts.rule)},
          .gate = gate,
          .clamped = clamped,
          .losses = {.balance = share(experts.balance_loss), .z = share(experts.z_loss)},
          .bias_rate = static_cast<float>(experts.bias_rate)};
}

void resolve_experts(ExpertConfig& experts, std::int64_t width, std::int64_t count,
                     std::int64_t chosen, const char* rule) {
  if (experts.count == 0) experts.count = count;
  if (experts.count == 0) return;
  if (experts.chosen == 0) experts.chosen = std::min(chosen, experts.count);
  if (experts.rule.empty()) experts.rule = rule;
  if (experts.inner_width > 0) return;
  const std::int64_t parts = 96 * experts.chosen;  // 8/3 of the width in multiples of 32
  experts.inner_width = (8 * width + parts - 1) / parts * 32;
}

void collect_expert_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const ExpertConfig& experts = config.experts;
  if (experts.count == 0) {
    if (experts.chosen > 0)
      problems.push_back(concat("model.experts.chosen: got ", experts.chosen,
                                ", and model.experts.count is 0; want a number of experts"));
    return;
  }
  if (experts.chosen > experts.count)
    problems.push_back(concat("model.experts.chosen: got ", experts.chosen,
                              ", want at most model.experts.count, ", experts.count));
}

}  // namespace hybrid_trainer
