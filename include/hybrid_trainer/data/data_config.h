#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// How training examples are cut from a data folder; the config's group `data`.
struct DataConfig {
  std::int64_t batch_size = 8;
  std::int64_t sequence_length = 256;
  bool shuffle = true;
  std::int64_t prefetch_depth = 1;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"batch_size", self.batch_size,
                "Sequences that go through the model at once: one micro-batch.",
                Range::between(1, 1 << 20)});
    visit(Field{"sequence_length", self.sequence_length, "Tokens in one sequence.",
                Range::between(1, 1 << 20)});
    visit(Field{"shuffle", self.shuffle,
                "Visit the sequences of an epoch in a seeded random order instead of one after the "
                "other."});
    visit(Field{"prefetch_depth", self.prefetch_depth,
                "Steps whose batches a thread reads ahead, each held in memory; with 0 a step "
                "waits for its own.",
                Range::between(0, 1024)});
  }
};

}  // namespace hybrid_trainer
