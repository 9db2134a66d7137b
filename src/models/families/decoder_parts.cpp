#include "src/models/families/decoder_parts.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/models/decoder.h"

namespace hybrid_trainer {

namespace {

kernels::RoutingRule routing_rule(const std::string& name) {
  if (name == kSoftmaxRule) return kernels::RoutingRule::kSoftmax;
  if (name == kSigmoidRule || name == kPlainSigmoidRule) return kernels::RoutingRule::kSigmoid;
  return kernels::RoutingRule::kSoftmaxOfChosen;
}

}  // namespace

Attention::Spec attention_of(const ModelConfig& config, std::int64_t window,
                             const std::shared_ptr<RotaryTable>& rotary) {
  Attention::Spec attention{
      .width = config.width,
      .heads = {static_cast<int>(config.heads), static_cast<int>(config.kv_heads)},
      .head_size = config.head_size,
      .biases = config.attention_bias,
      .output_bias = config.attention_bias,
      .limit = static_cast<float>(config.query_key_value_limit),
      .rotary = rotary,
      .files = {.first = {"q_proj", "k_proj", "v_proj"}, .last = "o_proj"}};
  if (config.query_scalar > 0)
    attention.heads.scale = static_cast<float>(1 / std::sqrt(config.query_scalar));
  attention.heads.cap = static_cast<float>(config.attention_cap);
  attention.heads.window = window;
  set_block_pattern(attention, config);
  return attention;
}

std::int64_t rotated_channels(const ModelConfig& config) {
  return static_cast<std::int64_t>(config.rotary_share * static_cast<double>(config.head_size));
}

/// Divides the losses' factors by the number of layers with experts, to give means over these.
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
          .intermediate_size = experts.intermediate_size,
          .routing = {.experts = experts.count,
                      .chosen = experts.chosen,
                      .rule = routing_rule(experts.rule),
                      .scale = static_cast<float>(experts.scale),
                      .normalized = experts.rule != kPlainSigmoidRule},
          .gate = gate,
          .clamped = clamped,
          .losses = {.balance = share(experts.balance_loss), .z = share(experts.z_loss)},
          .bias_rate = static_cast<float>(experts.bias_rate),
          .fixed_bias = experts.selection_bias};
}

void resolve_attention(ModelConfig& config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_size == 0) config.head_size = config.width / config.heads;
}

void resolve_intermediate_size(ModelConfig& config) {
  if (config.intermediate_size == 0) config.intermediate_size = (8 * config.width + 191) / 192 * 64;
}

void resolve_experts(ExpertConfig& experts, std::int64_t width, std::int64_t count,
                     std::int64_t chosen, const char* rule) {
  if (experts.count == 0) experts.count = count;
  if (experts.count == 0) return;
  if (experts.chosen == 0) experts.chosen = std::min(chosen, experts.count);
  if (experts.rule.empty()) experts.rule = rule;
  if (experts.intermediate_size > 0) return;
  const std::int64_t parts = 96 * experts.chosen;  // 8/3 of the width in multiples of 32
  experts.intermediate_size = (8 * width + parts - 1) / parts * 32;
}

bool collect_head_size_problem(const ModelConfig& given, std::vector<std::string>& problems) {
  if (given.head_size != 0 || given.width % given.heads == 0) return false;
  problems.push_back(concat("model.heads: got ", given.heads,
                            ", which does not divide model.width ", given.width,
                            "; give model.head_size"));
  return true;
}

void collect_kv_head_problem(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads % config.kv_heads == 0) return;
  problems.push_back(concat("model.kv_heads: got ", config.kv_heads,
                            ", which does not divide model.heads ", config.heads));
}

void collect_rotary_share_problem(const ModelConfig& config, std::vector<std::string>& problems) {
  const std::int64_t turned = rotated_channels(config);
  if (config.rotary_share == 0 || (turned >= 2 && turned % 2 == 0)) return;
  problems.push_back(concat("model.rotary_share: got ", config.rotary_share, ", which is ", turned,
                            " of the ", config.head_size,
                            " channels of a head; want an even number: positions rotate pairs"));
}

void collect_longrope_problem(const ModelConfig& config, std::vector<std::string>& problems) {
  const RotaryScaling& scaling = config.rope_scaling;
  const std::int64_t pairs = rotated_channels(config) / 2;
  if (scaling.type != "longrope" ||
      (std::ssize(scaling.short_factors) == pairs && std::ssize(scaling.long_factors) == pairs))
    return;
  problems.push_back(concat("model.rope_scaling.type: got longrope, which needs ", pairs,
                            " short and long factors for these heads; only the config.json of a "
                            "folder can set them (--model)"));
}

void collect_direction_problem(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.bidirectional) return;
  problems.push_back(concat("model.bidirectional: got false, but tokens of the family ",
                            config.family, " also see later tokens; want true"));
}

void collect_expert_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const ExpertConfig& experts = config.experts;
  if (experts.count == 0) {
    if (experts.chosen > 0)
      problems.push_back(concat("model.experts.chosen: got ", experts.chosen,
                                ", but model.experts.count is 0; set it to the number of experts"));
    return;
  }
  if (experts.chosen > experts.count)
    problems.push_back(concat("model.experts.chosen: got ", experts.chosen,
                              ", want at most model.experts.count, ", experts.count));
}

}  // namespace hybrid_trainer
