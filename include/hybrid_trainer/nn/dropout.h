#pragma once

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/segmented_pass.h"

namespace hybrid_trainer {

/// Maps rows to tokens, for example the rows that are routed to experts (kernels::Routing::pairs).
struct TokenRows {
  Tensor pairs{};  // (R) i32: row r belongs to token pairs[r] / per_token; undefined: token r
  std::int64_t per_token = 1;  // rows per token
};

/// Applies dropout in place to x, (..., width). `site` identifies the dropout layer: 0 is the
/// embedding, and each branch has its own site. Micro-batches, segments and backward, which is the
/// same call on the gradient, drop the same elements as the whole batch.
inline void apply_dropout(const Tensor& x, float share, const Pass& pass, std::uint64_t site,
                          const Stream& stream, const TokenRows& rows = {}) {
  const std::int64_t width = x.size(x.shape().rank() - 1);
  kernels::DropoutNumbers numbers{
      .key = {pass.seed, pass.step, site},
      .first = static_cast<std::uint64_t>(pass.first_token * rows.per_token * width),
      .step_words = pass.step_words,
      .rows = rows.pairs};
  if (pass.carry != nullptr && pass.carry->place().tokens < pass.carry->place().whole) {
    numbers.run = pass.carry->place().tokens * rows.per_token;
    numbers.stride = pass.carry->place().whole * rows.per_token;
  }
  const Tensor as_rows = x.as_rows();
  kernels::dropout(as_rows, as_rows, share, numbers, stream);
}

}  // namespace hybrid_trainer
