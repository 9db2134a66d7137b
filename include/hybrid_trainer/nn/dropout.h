#pragma once

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// Applies dropout in place to x, (..., width) with one row per token, for the pass's step at one
/// site of the model (embedding 0, then one for each branch). A micro-batch drops what the whole batch
/// would. The same call on the gradient drops the same elements, so nothing is saved for backward.
inline void apply_dropout(const Tensor& x, float share, const Pass& pass, std::uint64_t site,
                          const Stream& stream) {
  const std::int64_t width = x.size(x.shape().rank() - 1);
  kernels::dropout(x, x, share,
                   {.key = {pass.seed, pass.step, site},
                    .first = static_cast<std::uint64_t>(pass.first_token * width),
                    .step_words = pass.step_words},
                   stream);
}

}  // namespace hybrid_trainer
