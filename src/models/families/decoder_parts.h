#pragma once

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

/// Parts shared by families of decoders. Functions other than resolve_… take resolved configs.

/// `window`: number of keys that attention covers; 0: all.
Attention::Spec attention_of(const ModelConfig& config, std::int64_t window,
                             const std::shared_ptr<RotaryTable>& rotary);
std::int64_t rotated_channels(const ModelConfig& config);
RoutedExperts::Spec experts_of(const ModelConfig& config, kernels::Gate gate);

/// Replaces zeros of kv_heads, head_size and intermediate_size with their defaults.
void resolve_attention(ModelConfig& config);
void resolve_intermediate_size(ModelConfig& config);
/// Replaces zeros with the family's defaults: `count` experts, of which `rule` selects `chosen`.
void resolve_experts(ExpertConfig& experts, std::int64_t width, std::int64_t count,
                     std::int64_t chosen, const char* rule);

/// Adds a problem if head_size is not set and heads does not divide width. Returns whether it did.
bool collect_head_size_problem(const ModelConfig& given, std::vector<std::string>& problems);
void collect_kv_head_problem(const ModelConfig& config, std::vector<std::string>& problems);
void collect_rotary_share_problem(const ModelConfig& config, std::vector<std::string>& problems);
/// Adds a problem if a resolved config has longrope without factors for each rotated pair.
void collect_longrope_problem(const ModelConfig& config, std::vector<std::string>& problems);
void collect_expert_problems(const ModelConfig& config, std::vector<std::string>& problems);

void collect_direction_problem(const ModelConfig& config, std::vector<std::string>& problems);

}  // namespace hybrid_trainer
