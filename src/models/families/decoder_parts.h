#pragma once

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

/// Parts that families of decoders share, by a resolved config. A family sets what it has in addition.

/// Attention over the keys of a window; 0: over all.
Attention::Spec attention_of(const ModelConfig& config, std::int64_t window,
                             const std::shared_ptr<RotaryTable>& rotary);
/// The experts' part of a mixture.
RoutedExperts::Spec experts_of(const ModelConfig& config, kernels::Gate gate);

/// Puts in the sizes that zeros of key_heads, head_size and inner_width stand for.
void resolve_attention(ModelConfig& config);
void resolve_inner_width(ModelConfig& config);
/// Puts in what zeros stand for, where the family's mixtures have `count` experts of which `chosen` are
/// chosen by `rule`.
void resolve_experts(ExpertConfig& experts, std::int64_t width, std::int64_t count,
                     std::int64_t chosen, const char* rule);

/// Appends the problem of a config whose heads have no size; returns whether there is one.
bool collect_head_size_problem(const ModelConfig& given, std::vector<std::string>& problems);
/// Appends the problem of key_heads, of a resolved config.
void collect_key_head_problem(const ModelConfig& config, std::vector<std::string>& problems);
/// Appends problems of a resolved config's experts.
void collect_expert_problems(const ModelConfig& config, std::vector<std::string>& problems);

}  // namespace hybrid_trainer
