#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/nn/rotary_table.h"

namespace hybrid_trainer {

/// What is built: a family and its shape. A family may lack some of the keys (see ModelFamily).
struct ModelConfig {
  std::string family = "gpt2";
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t context = 1024;
  std::int64_t vocabulary = 0;
  double dropout = 0.0;
  std::optional<double> initializer_range{};
  std::int64_t key_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t inner_width = 0;
  double norm_epsilon = 1e-5;
  double rope_theta = 1e4;
  RotaryScaling rope_scaling{};
  bool tied_head = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::int64_t window = 0;
  std::string window_layers{};
  double window_rope_theta = 0;
  double query_scalar = 0;
  double attention_cap = 0;
  double logit_cap = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"family", self.family, "Kind of model."});
    visit(Field{"layers", self.layers, "Transformer blocks.", Range::between(1, 1000)});
    visit(Field{"heads", self.heads,
                "Attention heads; must divide the width, unless head_size is given.",
                Range::between(1, 1024)});
    visit(
        Field{"width", self.width, "Channels C of the residual stream.", Range::between(1, 65536)});
    visit(Field{"context", self.context, "Positions that the model knows; the longest sequence.",
                Range::between(1, 1 << 20)});
    visit(Field{"vocabulary", self.vocabulary,
                "Tokens; 0 takes the number that the data's tokenizer has.",
                Range::between(0, 1 << 24)});
    visit(Field{"dropout", self.dropout,
                "Share of the embedding's and both branches' outputs dropped in training.",
                Range::fraction()});
    visit(Field{"initializer_range", self.initializer_range,
                "Standard deviation of the first weights, that of the products that end the "
                "branches divided by √(2·layers). Left out: 0.02, matrices of models narrower than "
                "768 more by √(768/width).",
                Range{0, 1, true, false}});
    visit(
        Field{"key_heads", self.key_heads,
              "Heads of keys and values, each read by heads/key_heads of the queries'; must divide "
              "heads; 0 takes as many.",
              Range::between(0, 1024)});
    visit(Field{"head_size", self.head_size,
                "Channels of each head, an even number; 0 takes width/heads.",
                Range::between(0, 1024)});
    visit(
        Field{"inner_width", self.inner_width,
              "Channels between the products of the feed-forward branch; 0 takes 8/3 of the width, "
              "rounded up to a multiple of 64.",
              Range::between(0, 1 << 20)});
    visit(Field{"norm_epsilon", self.norm_epsilon, "Joins the mean square in norms.",
                Range::between(1e-12, 1)});
    visit(Field{"rope_theta", self.rope_theta,
                "Base of the angles by which positions rotate queries and keys.",
                Range::between(1, 1e12)});
    visit(
        Field{"rope_scaling", self.rope_scaling, "Angles for contexts longer than the first one."});
    visit(Field{"tied_head", self.tied_head, "The head shares the token table."});
    visit(
        Field{"attention_bias", self.attention_bias,
              "Attention's products have biases; qwen2's for queries, keys and values always do."});
    visit(Field{"mlp_bias", self.mlp_bias, "The feed-forward branch's products have biases."});
    visit(
        Field{"window", self.window,
              "Keys that a query sees in the layers of window_layers, its own among them; 0: all.",
              Range::between(0, 1 << 24)});
    visit(Field{"window_layers", self.window_layers,
                "A letter for each layer, repeated: w with the window, a without. Left empty, what "
                "the family has: w; gemma2 wa; gemma3 wwwwwa."});
    visit(Field{"window_rope_theta", self.window_rope_theta,
                "rope_theta of the layers with a window, without scaling; 0 takes 10000.",
                Range::between(0, 1e12)});
    visit(Field{"query_scalar", self.query_scalar,
                "Scores are divided by its root; 0 takes the head size.", Range::at_least(0)});
    visit(Field{"attention_cap", self.attention_cap, "Scores s become c·tanh(s/c); 0: as they are.",
                Range::at_least(0)});
    visit(Field{"logit_cap", self.logit_cap, "The same of logits.", Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
