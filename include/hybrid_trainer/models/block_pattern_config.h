#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// A pattern of blocks that attention keeps to; see kernels::BlockPattern.
struct BlockPatternConfig {
  std::int64_t block = 64;
  std::int64_t local_blocks = 0;
  std::int64_t global_blocks = 0;
  std::int64_t random_blocks = 0;
  std::int64_t seed = 0;

  bool is_on() const { return local_blocks > 0; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"block", self.block,
                "Positions of a block. Fastest are multiples of 64; others work, too.",
                Range::between(1, 65536)});
    visit(Field{"local_blocks", self.local_blocks,
                "Blocks of keys up to its own one that a block of queries sees; 0: no pattern, a "
                "query sees all keys before it.",
                Range::between(0, 65536)});
    visit(Field{"global_blocks", self.global_blocks, "First blocks, which all queries see, too.",
                Range::between(0, 65536)});
    visit(Field{"random_blocks", self.random_blocks,
                "Blocks between the first and the local ones that a block of queries sees, too: as "
                "many, spread evenly, drawn for each layer, head and block.",
                Range::between(0, 1024)});
    visit(Field{"seed", self.seed, "Seed of the random blocks.", Range::between(0, 1 << 30)});
  }
};

}  // namespace hybrid_trainer
