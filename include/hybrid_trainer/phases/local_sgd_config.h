#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Local SGD: in Predict, each rank trains by itself, and the ranks exchange how far they came.
struct LocalSgdConfig {
  std::int64_t steps = 0;
  std::int64_t delay = 1;
  std::int64_t fragments = 1;
  std::int64_t exchange_bits = 32;
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"steps", self.steps,
                "Steps that each rank trains by itself between two exchanges of weights. Must be "
                "given; 0 is no choice.",
                Range::between(0, 100000)});
    visit(Field{"delay", self.delay, "Steps between the start of an exchange and its arrival.",
                Range::between(1, 8)});
    visit(Field{"fragments", self.fragments,
                "Equal parts of the weights. Each is exchanged by itself, every `steps` at steps "
                "of its own, so that the link carries one part at a time.",
                Range::between(1, 100000)});
    visit(Field{"exchange_bits", self.exchange_bits,
                "Bits that an exchange sends of each weight's movement: 32, 8 or 4. 8 and 4 are in "
                "blocks with a scale each, and the next exchange makes up for the rounding.",
                Range::between(4, 32)});
    visit(Field{"outer_learning_rate", self.outer_learning_rate,
                "Share of the ranks' mean movement by which an exchange moves the common weights.",
                Range::between(0, 2)});
    visit(Field{"outer_momentum", self.outer_momentum,
                "Nesterov momentum of these movements, from exchange to exchange.",
                Range::fraction()});
  }
};

}  // namespace hybrid_trainer
