#pragma once

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

/// The rules of kernels::RoutingRule by their names in a config.
kernels::RoutingRule routing_rule(const std::string& name);

/// The experts' part of a mixture, by a resolved config.
RoutedExperts::Spec experts_of(const ModelConfig& config, kernels::Gate gate);

/// Puts in what zeros stand for, where the family's mixtures have `count` experts of which `chosen` are
/// chosen by `rule`.
void resolve_experts(ExpertConfig& experts, std::int64_t width, std::int64_t count,
                     std::int64_t chosen, const char* rule);

/// Problems of a resolved config's experts.
void collect_expert_problems(const ModelConfig& config, std::vector<std::string>& problems);

}  // namespace hybrid_trainer
