#pragma once

#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

/// Applies dropout in place to x, (..., width) with one row per token, for the pass's step at one
/// site of the model (embedding 0, then two per block). A micro-batch drops what the whole batch
/// would. The same call on the gradient drops the same elements, so nothing is saved for backward.
void apply_dropout(const Tensor& x, float share, const Pass& pass, std::uint64_t site,
                   const Stream& stream);

}  // namespace hybrid_trainer
