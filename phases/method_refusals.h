#pragma once

#include <vector>

#include "hybrid_trainer/phases/refusal.h"

namespace hybrid_trainer {

/// The kinds of tests, for lists of refusals.
using Kind = KeyTest::Kind;

/// Gradients in 16 bits, for methods that update at once.
Refusal refusal_of_rounded_gradients();
/// Recoveries that act on a confidence and a predictor, for methods that have neither.
Refusal refusal_of_prediction_recoveries();
/// What methods refuse in which ranks run ahead of one another, of memory, optimizers and ranks.
std::vector<Refusal> refusals_ahead_of_ranks();

}  // namespace hybrid_trainer
