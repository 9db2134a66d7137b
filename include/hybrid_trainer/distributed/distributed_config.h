#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// How ranks share a step. JSON group `distributed`.
struct DistributedConfig {
  std::int64_t zero = 0;
  std::int64_t bucket_bytes = 4 << 20;
  std::int64_t check_weights_every = 0;
  std::int64_t collective_timeout_seconds = 30;

  /// Whether ranks compare their weights after this step. With zero 3 none is on two ranks.
  bool compares_weights(std::int64_t step, bool saves) const {
    return zero < 3 && (saves || (check_weights_every > 0 && step % check_weights_every == 0));
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"zero", self.zero,
                "What each rank has a part of, instead of all: 0 nothing, 1 the optimizer state, 2 "
                "the gradients too, 3 the weights too. No bit of training depends on it.",
                Range::between(0, 3)});
    visit(Field{"bucket_bytes", self.bucket_bytes,
                "With zero 2 and 3 gradients are sent when there are this many bytes of them; with "
                "1 and 2 updated weights by as many.",
                Range::between(4096, std::int64_t{1} << 32)});
    visit(Field{"check_weights_every", self.check_weights_every,
                "After each of so many steps ranks compare the checksums of their weights, and the "
                "job ends where one differs; 0: only before each checkpoint. Not with zero 3.",
                Range::at_least(0)});
    visit(Field{"collective_timeout_seconds", self.collective_timeout_seconds,
                "After this long without progress, while others wait for it, a rank counts as lost "
                "and the job ends; also after this long without a sign of life, or 10 s.",
                Range::between(1, 86400)});
  }
  bool operator==(const DistributedConfig&) const = default;
};

}  // namespace hybrid_trainer
