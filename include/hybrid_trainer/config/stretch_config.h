#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

const std::vector<std::string>& stretch_precision_names();  // "fp32", "bf16"

/// Steps with which a run begins and that differ from the rest in the batch, the precision or
/// muon's period, as short sequences or small batches at first. What is left out is as in the rest. A list: one
/// stretch follows the other, and the configuration's own batches follow the last. None is larger
/// than those. JSON list `stretches`.
struct StretchConfig {
  double until = 0.5;
  std::optional<std::int64_t> sequence_length{};
  std::optional<std::int64_t> effective_batch{};
  std::optional<std::string> precision{};
  std::optional<std::int64_t> orthogonalization_period{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"until", self.until,
                "Share of training.steps after which the stage ends. It may end a few steps later, "
                "so that each token is used once.",
                Range{0, 1, true, false}});
    visit(Field{"sequence_length", self.sequence_length,
                "Tokens in one sequence. Must divide data.sequence_length.",
                Range::between(1, 1 << 20)});
    visit(Field{"effective_batch", self.effective_batch,
                "Sequences of one step, in as few micro-batches as are no larger than the "
                "configured ones. Left out: as many tokens as the configuration has.",
                Range::between(1, std::int64_t{1} << 36)});
    visit(Field{"precision", self.precision,
                "Precision in Warmup and Full, in place of mixed_precision.", Range{},
                stretch_precision_names()});
    visit(Field{"orthogonalization_period", self.orthogonalization_period,
                "See optimizer.orthogonalization_period.", Range::between(1, 1 << 20)});
  }
};

}  // namespace hybrid_trainer
