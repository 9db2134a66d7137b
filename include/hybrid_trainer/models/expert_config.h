#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// The values of ExpertConfig::rule.
inline constexpr const char* kSoftmaxRule = "softmax";
inline constexpr const char* kSoftmaxOfChosenRule = "softmax_of_chosen";
inline constexpr const char* kSigmoidRule = "sigmoid";

/// A mixture of experts in place of the feed-forward branch.
struct ExpertConfig {
  std::int64_t count = 0;
  std::int64_t chosen = 0;
  std::int64_t inner_width = 0;
  std::string rule{};
  std::string layers{};
  std::int64_t shared_width = 0;
  double gate_limit = 0;
  double balance_loss = 0;
  double bias_rate = 0;
  double z_loss = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"count", self.count,
                "Experts of a layer; 0: the family's number, which is none where it has dense "
                "models too.",
                Range::between(0, 1024)});
    visit(Field{"chosen", self.chosen, "Experts that each token goes to; 0: the family's number.",
                Range::between(0, 64)});
    visit(
        Field{"inner_width", self.inner_width,
              "Channels between the two products of an expert; 0: 8/3 of the width, divided by the "
              "chosen experts and rounded up to a multiple of 32.",
              Range::between(0, 1 << 20)});
    visit(Field{"rule",
                self.rule,
                "How the router's logits become the weights of the chosen experts: softmax over "
                "all experts, softmax_of_chosen over the chosen ones, or sigmoid, divided by the "
                "sum of the chosen ones. Empty uses the family's.",
                Range{},
                {"", kSoftmaxRule, kSoftmaxOfChosenRule, kSigmoidRule}});
    visit(Field{"layers", self.layers,
                "Which layers have experts, one letter per layer, repeated: e with experts, f with "
                "a feed-forward branch. Empty: all have (qwen2_moe, qwen3_moe)."});
    visit(Field{"shared_width", self.shared_width,
                "Inner width of an expert that all tokens go to besides; 0: there is none "
                "(qwen2_moe).",
                Range::between(0, 1 << 20)});
    visit(Field{
        "gate_limit", self.gate_limit,
        "What the gates and ups of an expert are cut to, the ups on both sides; 0: the family's "
        "(gpt_oss).",
        Range::at_least(0)});
    visit(Field{"balance_loss", self.balance_loss,
                "Factor α of the loss that spreads tokens over experts: α·E·Σ f·P, f the share of "
                "tokens that an expert gets and P its mean probability, a mean over the layers. "
                "Even loads give α·chosen. 0: off.",
                Range::at_least(0)});
    visit(
        Field{"bias_rate", self.bias_rate,
              "Spreads tokens without a loss: an expert is chosen by its score plus a bias, which "
              "after each step grows by this number where it got fewer tokens than the mean and "
              "shrinks where it got more, such as 0.001. Such a model has no Hugging Face folder. "
              "0: off.",
              Range::at_least(0)});
    visit(Field{"z_loss", self.z_loss,
                "Factor of the mean of the squared log-sum-exp of the router's logits, which keeps "
                "them small, a mean over the layers. 0: off.",
                Range::at_least(0)});
  }
};

/// Warns of routers that no loss trains; "" if some loss does. `experts` has no family defaults left.
inline std::string untrained_router_warning(const ExpertConfig& experts) {
  const bool is_always_one = experts.count > 1 && experts.chosen == 1 &&
                             (experts.rule == kSoftmaxOfChosenRule || experts.rule == kSigmoidRule);
  if (!is_always_one || experts.balance_loss > 0 || experts.z_loss > 0) return "";
  return "each token goes to one expert, whose weight is always 1, so no loss trains the routers; "
         "choose 2 experts or more, or train with --set model.experts.balance_loss=0.01";
}

/// Whether a layer has experts, by ExpertConfig::layers.
inline bool has_experts(const ExpertConfig& experts, std::int64_t layer) {
  const std::string& layers = experts.layers;
  return experts.count > 0 &&
         (layers.empty() || layers[static_cast<std::size_t>(layer) % layers.size()] == 'e');
}

}  // namespace hybrid_trainer
