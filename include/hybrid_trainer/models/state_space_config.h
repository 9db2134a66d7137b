#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// The sizes of state-space mixers, Mamba-2's and Gated DeltaNet's.
struct StateSpaceConfig {
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  std::int64_t groups = 1;
  std::int64_t state_size = 128;
  std::int64_t taps = 4;
  bool biases = false;
  bool convolution_bias = true;
  double least_step = 0;
  double most_step = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"heads", self.heads,
                "Heads of a state-space mixer (Gated DeltaNet: of values); 0: as many as make "
                "2·width channels.",
                Range::between(0, 4096)});
    visit(Field{"head_size", self.head_size,
                "Channels of each of them; 0: 64, or 32 where the width is less than 512.",
                Range::between(0, 1024)});
    visit(Field{"groups", self.groups,
                "Groups of heads that share keys B and queries C (Gated DeltaNet: heads of queries "
                "and keys); must divide heads.",
                Range::between(1, 4096)});
    visit(Field{"state_size", self.state_size,
                "Numbers N of each key and query: a head keeps head_size·N of a text.",
                Range::between(1, 1024)});
    visit(Field{"taps", self.taps, "Tokens that the convolution before the scan reads.",
                Range::between(1, 16)});
    visit(Field{"biases", self.biases, "The mixer's products have biases (Mamba-2, Hydra)."});
    visit(Field{"convolution_bias", self.convolution_bias,
                "Its convolution has a bias (Mamba-2, Hydra)."});
    visit(Field{"least_step", self.least_step, "Least step Δ of a token (Mamba-2).",
                Range::at_least(0)});
    visit(Field{"most_step", self.most_step, "Largest step Δ of a token (Mamba-2); 0: no limit.",
                Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
