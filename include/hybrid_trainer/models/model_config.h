#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hybrid_trainer/core/fields.h"

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

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"family", self.family, "Kind of model."});
    visit(Field{"layers", self.layers, "Transformer blocks.", Range::between(1, 1000)});
    visit(Field{"heads", self.heads, "Attention heads; must divide the width.",
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
  }
};

}  // namespace hybrid_trainer
