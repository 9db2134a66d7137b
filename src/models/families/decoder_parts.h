#pragma once

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

/// Parts shared by families of decoders, from a resolved config. Families add their own settings.

/// Returns the settings of attention over the keys in a window; 0: over all keys.
Attention::Spec attention_of(const ModelConfig& config, std::int64_t window,
                             const std::shared_ptr<RotaryTable>& rotary);
/// Returns the settings of a mixture's experts.
RoutedExperts::Spec experts_of(const ModelConfig& config, kernels::Gate gate);

/// Replaces zeros of kv_heads, head_size and intermediate_size with their defaults.
void resolve_attention(ModelConfig& config);
void resolve_intermediate_size(ModelConfig& config);
/// Replaces zeros with the family's defaults: `count` experts, of which `rule` selects `chosen`.
void resolve_experts(ExpertConfig& experts, std::int64_t width, std::int64_t count,
                     std::int64_t chosen, const char* rule);

/// Adds a problem if head_size is not set and heads does not divide width. Returns whether it did.
bool collect_head_size_problem(const ModelConfig& given, std::vector<std::string>& problems);
/// Adds the problem of a resolved config's kv_heads, if there is one.
void collect_kv_head_problem(const ModelConfig& config, std::vector<std::string>& problems);
/// Adds problems of a resolved config's experts.
void collect_expert_problems(const ModelConfig& config, std::vector<std::string>& problems);

/// Adds a problem if the config of an encoder family is not bidirectional.
void collect_direction_problem(const ModelConfig& config, std::vector<std::string>& problems);

}  // namespace hybrid_trainer
